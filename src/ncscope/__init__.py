"""A scope for neural collapse: measure it in any classifier.

``measure`` features at hand, ``measure_model`` a model layer by layer, ``watch`` one that your own
loop runs, or gather `ClassMoments` batch by batch and ``measure_moments``.
"""

from ncscope.api.information import batch_information, information_between
from ncscope.api.measure import measure, measure_moments
from ncscope.api.model import measure_model
from ncscope.api.result import ModelReport, Report
from ncscope.api.watching import watch
from ncscope.errors import InputError
from ncscope.metrics.information import BatchInformation
from ncscope.stats.moments import ClassMoments

__version__ = "0.1.0"

__all__ = [
    "BatchInformation",
    "ClassMoments",
    "InputError",
    "ModelReport",
    "Report",
    "batch_information",
    "information_between",
    "measure",
    "measure_model",
    "measure_moments",
    "watch",
]
