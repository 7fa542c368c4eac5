"""Which checkpoint will transfer: rank several on one downstream set."""

import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncscope.errors import InputError
from ncscope.files import write_bytes, write_text
from ncscope.transfer.ranking import Ranking, rank

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FIGURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class TransferReport:
    """Checkpoints ranked on one downstream set.

    Attributes:
        ranking: The plain record: checkpoints, the best probe first, and correlations.
    """

    ranking: Ranking

    @property
    def order(self) -> list[str]:
        """Names of the checkpoints, the best probe first."""
        return [each.name for each in self.ranking.checkpoints]

    def to_json(self) -> str:
        """One JSON object: measure, checkpoints, correlations; what is not finite is null."""
        whole = {
            "measure": self.ranking.measure,
            "checkpoints": [
                {
                    "name": each.name,
                    "accuracy": each.accuracy,
                    "strength": each.strength,
                    "scores": {key: _finite(value) for key, value in each.scores.items()},
                }
                for each in self.ranking.checkpoints
            ],
            "correlations": {
                score: {
                    name: {end: _finite(value) for end, value in found._asdict().items()}
                    for name, found in by_name.items()
                }
                for score, by_name in self.ranking.correlations.items()
            },
        }
        return json.dumps(whole, indent=2, allow_nan=False)

    def plot(self) -> "Figure":
        """A matplotlib figure: each score against the probe's accuracy."""
        from ncscope.report.transfer import ranking_figure

        return ranking_figure(self.ranking)

    def save(self, path: str | Path) -> Path:
        """Write the report as .json, or its figure as .png, .svg or .pdf.

        Raises:
            InputError: If the suffix is none of these.
        """
        path = Path(path)
        if path.suffix == ".json":
            return write_text(path, self.to_json() + "\n")
        if path.suffix in _FIGURES:
            content = io.BytesIO()
            self.plot().savefig(content, format=path.suffix[1:], dpi=160)
            return write_bytes(path, content.getvalue())
        expected = f"a file name ending in .json or {', '.join(_FIGURES)}"
        raise InputError(expected=expected, found=str(path), fix="choose one of these suffixes")


def rank_checkpoints(
    features: Mapping[str, Any],
    labels: Any,
    *,
    test_features: Mapping[str, Any] | None = None,
    test_labels: Any = None,
    pretraining: Mapping[str, tuple[Any, Any]] | None = None,
    measure: str = "top-1",
    seed: int = 0,
    on_checkpoint: Callable[[str], None] = lambda name: None,
) -> TransferReport:
    """Rank checkpoints by how well a linear probe does on their features of a downstream set.

    Beside the probe's accuracy stand VCI and its rivals, LogME and the H-score, and how each goes
    with the accuracy over the checkpoints. On the downstream set itself less variability within
    classes is better; VCI's claim is about the *pretraining* set, where more is better: pass
    ``pretraining`` to measure that too.

    Args:
        features: By checkpoint, of the same samples in the same order: n x d array-likes, each
            with a d of its own.
        labels: Of the samples: n integers.
        test_features: By checkpoint, of held-out samples; by default a fifth of the samples is
            held out, class by class.
        test_labels: Of those.
        pretraining: By checkpoint, features and labels of samples of its pretraining set.
        measure: ``"top-1"`` or ``"mean per class"`` accuracy.
        seed: Of the split into training, validation and held-out samples.
        on_checkpoint: Called with each checkpoint's name before its turn.

    Returns:
        The ranking, with ``order``, ``to_json``, ``plot`` and ``save``.

    Raises:
        InputError: If something does not fit: see the fields of the message.

    Cost: a checkpoint takes a few fits of logistic regression; see `logistic_path`.

    Example:
        >>> import torch
        >>> labels = torch.arange(60) % 3
        >>> far = torch.eye(3)[labels] + 0.1 * torch.randn(60, 3)
        >>> near = torch.eye(3)[labels] + 2.0 * torch.randn(60, 3)
        >>> rank_checkpoints({"near": near, "far": far}, labels).order
        ['far', 'near']
    """
    return TransferReport(
        rank(
            features,
            labels,
            test_features=test_features,
            test_labels=test_labels,
            pretraining=pretraining,
            measure=measure,
            seed=seed,
            on_checkpoint=on_checkpoint,
        )
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
