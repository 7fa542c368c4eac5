"""A scope for neural collapse: measure it in any classifier.

``measure`` features at hand, ``measure_model`` a model layer by layer, ``watch`` one that your own
loop runs, or ``gather`` moments batch by batch and ``measure_moments``. ``measure_shards`` measures
a data set in parts, in several processes or on several machines.

Other parts have modules of their own: ``ncscope.losses`` to train with, ``ncscope.transfer`` to
choose a checkpoint, ``ncscope.integrations`` for other libraries, and ``ncscope_lab``, which needs
the distribution ``ncscope-lab``: surrogate models, theorems and the papers' experiments.
"""

# A name that type checkers know. `typing` itself would be most of what an import of ncscope loads,
# and the command would have nothing to catch Control-C with until then.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ncscope.api.alerts import AlertWarning
    from ncscope.api.comparison import Comparison, compare
    from ncscope.api.gather import gather
    from ncscope.api.history import History
    from ncscope.api.information import batch_information, information_between
    from ncscope.api.measure import measure, measure_moments
    from ncscope.api.model import measure_model, watch
    from ncscope.api.multilabel import MultilabelReport, measure_multilabel
    from ncscope.api.regression import (
        RegressionReport,
        measure_regression,
        measure_regression_moments,
    )
    from ncscope.api.result import ModelReport, Report
    from ncscope.api.shards import measure_shards
    from ncscope.api.similarity import LayerSimilarity, cka, compare_layers
    from ncscope.api.transfer import TransferReport
    from ncscope.errors import InputError
    from ncscope.measurement.options import Options
    from ncscope.metrics.batch_information import BatchInformation
    from ncscope.stats.cka_moments import CkaMoments
    from ncscope.stats.moments import ClassMoments
    from ncscope.stats.regression_moments import RegressionMoments

__version__ = "0.1.0"

__all__ = [
    "AlertWarning",
    "BatchInformation",
    "CkaMoments",
    "ClassMoments",
    "Comparison",
    "History",
    "InputError",
    "LayerSimilarity",
    "ModelReport",
    "MultilabelReport",
    "Options",
    "RegressionMoments",
    "RegressionReport",
    "Report",
    "TransferReport",
    "batch_information",
    "cka",
    "compare",
    "compare_layers",
    "gather",
    "information_between",
    "measure",
    "measure_model",
    "measure_moments",
    "measure_multilabel",
    "measure_regression",
    "measure_regression_moments",
    "measure_shards",
    "watch",
]

# What needs torch is loaded when it is asked for: a help page, or a name completed in a shell,
# should not wait seconds for it.
_HOMES = {
    "AlertWarning": "api.alerts",
    "BatchInformation": "metrics.batch_information",
    "CkaMoments": "stats.cka_moments",
    "ClassMoments": "stats.moments",
    "Comparison": "api.comparison",
    "History": "api.history",
    "InputError": "errors",
    "LayerSimilarity": "api.similarity",
    "ModelReport": "api.result",
    "MultilabelReport": "api.multilabel",
    "Options": "measurement.options",
    "RegressionMoments": "stats.regression_moments",
    "RegressionReport": "api.regression",
    "Report": "api.result",
    "TransferReport": "api.transfer",
    "batch_information": "api.information",
    "cka": "api.similarity",
    "compare": "api.comparison",
    "compare_layers": "api.similarity",
    "gather": "api.gather",
    "information_between": "api.information",
    "measure": "api.measure",
    "measure_model": "api.model",
    "measure_moments": "api.measure",
    "measure_multilabel": "api.multilabel",
    "measure_regression": "api.regression",
    "measure_regression_moments": "api.regression",
    "measure_shards": "api.shards",
    "watch": "api.model",
}
_MODULES = ("integrations", "losses", "transfer")


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"ncscope.{name}")
    if name not in _HOMES:
        msg = f"module 'ncscope' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"ncscope.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
