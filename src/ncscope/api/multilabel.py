"""Measurement of multi-label neural collapse in arrays."""

import math
from pathlib import Path
from typing import Any

from ncscope.api.inputs import check_head, check_part
from ncscope.api.plain_report import PlainReport
from ncscope.api.writable import check_file, save_text
from ncscope.arguments import check_arguments
from ncscope.array_checks import as_tensor, check_features, refuse_nonfinite
from ncscope.errors import InputError
from ncscope.labels import check_pairing, read_label_sets
from ncscope.measurement.records import LayerRecord
from ncscope.metrics.multilabel import MultilabelValues, multilabel_collapse


@check_arguments
class MultilabelReport(PlainReport):
    """Values of multi-label neural collapse, by key.

    Keys: ``ml_nc1``, ``ml_nc2_means``; with a classifier also ``ml_nc2_weights``, ``ml_nc3`` and
    ``ml_accuracy``; for each multiplicity m above 1 that occurs ``ml_nc1_quotient_m2``,
    ``ml_ncm_m2``, ``ml_angle_m2``, ``ml_tagwise_m2`` and ``ml_scale_m2``, with its number. See
    `measure_multilabel`.

    Attributes:
        notes: Sentences for the reader: samples left out, why a value is NaN.
        warnings: Sentences on values that may mislead.
        num_samples: Number of samples.
        dim: Feature dimension.
        num_classes: Number of classes.
        multiplicities: Number of labels a sample, and how many samples and label sets have so many.
    """

    _suffixes = (".html", ".json", ".csv")

    def __init__(
        self, values: MultilabelValues, num_samples: int, dim: int, num_classes: int
    ) -> None:
        super().__init__(values.metrics, values.notes, values.warnings)
        self._rows, self.multiplicities = values.rows, values.multiplicities
        self.num_samples, self.dim, self.num_classes = num_samples, dim, num_classes

    def _describe(self) -> str:
        size = f"{self.num_samples} samples, dimension {self.dim}, {self.num_classes} classes"
        counts = [
            f"{sets} label sets of {m} ({samples} samples)"
            for m, (samples, sets) in self.multiplicities.items()
        ]
        return "; ".join([size, *counts])

    def _explain_absence(self, key: str) -> str:
        if key in ("ml_nc2_weights", "ml_nc3", "ml_accuracy"):
            return f"{key!r} was not measured; it needs the last layer's weight"
        return super()._explain_absence(key)

    def as_dict(self) -> dict[str, object]:
        """Return the values as plain types; NaN is None, and a note says why."""
        counts = {
            str(m): {"samples": samples, "label_sets": sets}
            for m, (samples, sets) in self.multiplicities.items()
        }
        return super().as_dict() | {
            "warnings": self.warnings,
            "num_samples": self.num_samples,
            "dim": self.dim,
            "num_classes": self.num_classes,
            "multiplicities": counts,
        }

    def save(self, path: str | Path, title: str | None = None) -> Path:
        """Write the report as .html, .json or .csv, and return the path.

        Args:
            path: File to write; one that is there is replaced whole or not at all.
            title: Heading of the page; by default the name of the file.

        Raises:
            InputError: If the suffix is another, or the folder cannot be written.
        """
        if Path(path).suffix != ".html":
            return super().save(path)
        from ncscope.report.multilabel import render_multilabel_page

        path = check_file(path, self._suffixes)
        record = LayerRecord(
            "value",
            dict(self),
            tuple(self.notes),
            self.num_classes,
            self.num_samples,
            self.dim,
            warnings=tuple(self.warnings),
        )
        facts = self._describe().split("; ")
        page = render_multilabel_page(title or path.stem, record, self._rows, facts)
        return save_text(path, page)

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each metric, with its meaning and its value at collapse."""
        rows = []
        for row, metric in zip(super().rows(), self._rows.values(), strict=True):
            target = metric.target(self.num_classes)
            collapsed_at = None if math.isnan(target) else target
            rows.append({**row, "collapsed_at": collapsed_at, "meaning": metric.meaning})
        return rows


@check_arguments
def measure_multilabel(
    features: Any, targets: Any, weight: Any = None, bias: Any = None
) -> MultilabelReport:
    r"""Measure neural collapse where samples have several labels.

    The definition is that of Li, Li, Wang and Qu, "Neural Collapse in Multi-label Learning with
    Pick-all-label Loss" (ICML 2024). A sample with m labels has multiplicity m; samples with the
    same labels S are one label set with mean $\mu_S$; $\mu_k$ is the mean of the samples whose only
    label is k, $\mu_G$ the mean of all $\mu_k$. Every label set counts once.

    * ``ml_nc1``: $\frac1K\operatorname{Tr}[\Sigma_W\Sigma_B^\dagger]$ of samples with one label.
    * ``ml_nc2_means``, ``ml_nc2_weights``: distance of the Gram matrix of the $\mu_k-\mu_G$, and of
      the rows of $W$, from a simplex's, in $[0,\sqrt2]$.
    * ``ml_nc3``: distance of $W(\mu_k-\mu_G)$ from a simplex's, in $[0,2]$.
    * ``ml_accuracy``: share of the samples whose m labels have the m largest logits.

    For each m above 1 that occurs, here m = 2:

    * ``ml_nc1_quotient_m2``: variance within label sets of two samples or more, over the variance
      of their means.
    * ``ml_angle_m2``: mean angle between $\mu_S$ and $\sum_{k\in S}\mu_k$, in degrees.
    * ``ml_ncm_m2``: this angle, divided by the mean angle between $\mu_S$ and the sum of any m
      classes: the paper's $\mathcal{NC}_m$.
    * ``ml_tagwise_m2``: share of $\sum_S\lVert\mu_S-\mu_G\rVert^2$ that the tag-wise averages
      $c\,\frac1m\sum_{k\in S}(\mu_k-\mu_G)$ leave over, for the best scale $c\ge0$, in $[0,1]$.
    * ``ml_scale_m2``: the best scale $c$.

    All but the accuracy and the scale are 0 at collapse, the minimum of the paper's unconstrained
    features model with weight decay. There the scale tends to m as the decay tends to 0.

    Args:
        features: n x d array-like, the features that the last linear layer reads.
        targets: n x K array-like of 0 and 1, or of booleans: the classes of each sample. Samples
            without a class are left out.
        weight: Weight of the last layer, K x d; without a weight, what needs one is absent.
        bias: Bias of the last layer, K, which only the accuracy reads.

    Returns:
        Mapping from key to value, with notes, warnings, ``multiplicities``, ``to_json``,
        ``to_dataframe`` and ``save``. What the definition does not define, as without samples that
        have one of the classes alone, is NaN with a note.

    Raises:
        InputError: If shapes do not fit, an entry of the targets is neither 0 nor 1, a feature is
            NaN or infinite, or no sample has a label.

    Cost: one measurement of ``nc1`` for the samples with one label, two reads of the others, and
    the angles of ``ml_ncm_m2``: $\binom{K}{m}$ times the number of label sets, left out above
    $10^8$.

    Example:
        >>> import torch, ncscope
        >>> from ncscope.math.frames import simplex_etf
        >>> means = simplex_etf(3, dim=4)
        >>> targets = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1]])
        >>> targets = targets.repeat(10, 1)
        >>> report = ncscope.measure_multilabel(targets.double() @ means, targets, means)
        >>> report["ml_tagwise_m2"] < 1e-20, round(report["ml_scale_m2"], 9)
        (True, 2.0)
    """
    rows = as_tensor(features, "features")
    check_features(rows)
    refuse_nonfinite(rows)
    check_pairing(features, targets, "targets")
    present = read_label_sets(targets, len(rows)).to(rows.device)
    if not bool(present.any()):
        fix = "check that the targets are read from the right columns"
        found = f"none in {len(rows)} samples"
        raise InputError(expected="at least one sample with a label", found=found, fix=fix)
    sizes = present.shape[1], rows.shape[1]
    check_head(weight, bias)
    head = None if weight is None else check_part("weight", weight, sizes, rows.device)
    intercept = None if bias is None else check_part("bias", bias, sizes[:1], rows.device)
    values = multilabel_collapse(rows, present, head, intercept)
    return MultilabelReport(values, len(rows), sizes[1], sizes[0])
