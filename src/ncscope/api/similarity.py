"""Similarity of two sets of features, and of the layers of models: centred kernel alignment."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn
from torch.utils.data import Dataset

from ncscope.api.tables import csv_text, data_frame
from ncscope.api.writable import check_file, save_text, write_figure
from ncscope.arguments import check_arguments
from ncscope.array_checks import as_tensor, check_features, refuse_nonfinite
from ncscope.errors import InputError
from ncscope.math.hsic import LEAST_SAMPLES
from ncscope.measurement.similarity import ModelSide, SimilarityRecord, layer_similarity
from ncscope.metrics.cka import linear_cka
from ncscope.report.wording import quote_number

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

_LONGEST_LINE, _MOST_ROWS_SHOWN = 100, 30
"""Longest line and largest number of rows of a matrix in the text of an object."""

_SUFFIXES = (".json", ".csv", ".png", ".svg", ".pdf")


@check_arguments
def cka(first: Any, second: Any) -> float:
    r"""Measure how alike two sets of features arrange the same samples.

    Centred kernel alignment with linear kernels (Kornblith et al. 2019), from the unbiased HSIC of
    Song et al. (2012), as in Nguyen, Raghu and Kornblith (2021):

    $$\mathrm{CKA}=\frac{\mathrm{HSIC}_u(XX^\top,YY^\top)}
    {\sqrt{\mathrm{HSIC}_u(XX^\top,XX^\top)\,\mathrm{HSIC}_u(YY^\top,YY^\top)}}\in[-1,1].$$

    1 means equal up to rotation, scale and shift. Unrelated features give 0 on average, and
    negative values as often as positive ones. The value does not change if either set is rotated,
    multiplied by a number or shifted.

    Args:
        first: n x d array-like of any magnitude, n at least 4.
        second: Array-like with the same samples in the same order; its dimension may differ.

    Returns:
        The value over all samples at once, exact to float64; not a mean over batches.

    Raises:
        InputError: If the numbers of samples differ or are below 4, a feature is NaN or infinite,
            or a set is constant or has only equidistant samples, so that its HSIC is zero.

    Cost: the lesser of $2n(d_1^2+d_1d_2+d_2^2)$ and $2n^2(d_1+d_2)$ operations in float64. For a
    stream of batches use `CkaMoments`.

    Example:
        >>> import torch, ncscope
        >>> features = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
        >>> round(ncscope.cka(features, 3 * features.flip(1) + 1), 12)
        1.0
    """
    sets = [as_tensor(value, name) for value, name in ((first, "first"), (second, "second"))]
    for name, rows in zip(("first", "second"), sets, strict=True):
        check_features(rows)
        refuse_nonfinite(rows, f"features in the {name} set")
    lengths = [len(rows) for rows in sets]
    if lengths[0] != lengths[1]:
        fix = "pass the features of the same samples, in the same order"
        found = f"{lengths[0]} and {lengths[1]}"
        raise InputError(expected="as many samples in both sets", found=found, fix=fix)
    if lengths[0] < LEAST_SAMPLES:
        expected = f"at least {LEAST_SAMPLES} samples for the unbiased HSIC"
        raise InputError(expected=expected, found=f"{lengths[0]}", fix="pass more samples")
    value = float(linear_cka(*sets))
    if math.isnan(value):
        raise InputError(
            expected="features with a positive HSIC with themselves",
            found="a set that is constant or has only equidistant samples",
            fix="pass more samples, or look for the layer that collapsed to a point",
        )
    return value


@check_arguments
class LayerSimilarity:
    """CKA between the layers of one model, or of two models.

    Attributes:
        rows: Names of the layers of the model, in forward order.
        columns: Names of the layers of the other model; without one, equal to ``rows``.
        values: CKA as an array with a row for each layer of the model; NaN where it is undefined.
        notes: Sentences for the reader, such as which layers are constant.
        num_samples: Number of samples.
    """

    def __init__(self, record: SimilarityRecord) -> None:
        self.record = record
        self.rows, self.columns = list(record.rows), list(record.columns)
        self.values = np.asarray(record.values)
        self.num_samples = record.num_samples
        columns = zip(*record.values, strict=True)
        lines = [*zip(self.rows, record.values, strict=True)]
        lines += zip(self.columns, columns, strict=True)
        undefined = [name for name, values in lines if all(map(math.isnan, values))]
        self.notes = [
            f"{quote_number(name)} is constant or maps all samples to equidistant points: its CKA "
            "is undefined"
            for name in dict.fromkeys(undefined)
        ]

    def __getitem__(self, pair: tuple[str, str]) -> float:
        """Return the CKA of a layer of the model and a layer of the other.

        Raises:
            KeyError: If there is no such layer, or one name alone is given.
        """
        if isinstance(pair, str) or len(pair) != 2:
            fix = f"similarity[{self.rows[0]!r}, {self.columns[-1]!r}]"
            msg = f"{pair!r}; pass two layers, for example {fix}"
            raise KeyError(msg)
        row, column = pair
        for name, layers in ((row, self.rows), (column, self.columns)):
            if name not in layers:
                msg = f"{name!r}; the layers are {', '.join(map(repr, layers))}"
                raise KeyError(msg)
        return float(self.values[self.rows.index(row), self.columns.index(column)])

    def __repr__(self) -> str:
        size = f"{len(self.rows)} x {len(self.columns)} layers, {self.num_samples} samples"
        lines = [f"LayerSimilarity: {size}"]
        cells = [["", *self.columns]]
        cells += [
            [name, *(f"{value:.3f}" for value in row)]
            for name, row in zip(self.rows, self.record.values, strict=True)
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        if len(self.rows) <= _MOST_ROWS_SHOWN and sum(widths) + 2 * len(widths) <= _LONGEST_LINE:
            first, *others = widths
            lines += [
                "  ".join(["", name.ljust(first), *map(str.rjust, row, others)])
                for name, *row in cells
            ]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return a pandas data frame with a row for each layer and a column for each other layer.

        Raises:
            InputError: If pandas is not installed.
        """
        return data_frame(self._table_rows()).set_index("layer")

    def to_json(self) -> str:
        """Write layers and values as one JSON object; undefined values are null."""
        values = [
            [None if math.isnan(value) else value for value in row] for row in self.record.values
        ]
        content = {
            "rows": self.rows,
            "columns": self.columns,
            "cka": values,
            "notes": self.notes,
            "num_samples": self.num_samples,
        }
        return json.dumps(content, indent=2, ensure_ascii=False)

    def plot(self) -> "Figure":
        """Draw the values as a picture, a matplotlib figure."""
        from ncscope.report.figures import plot_similarity

        return plot_similarity(self.record)

    def save(self, path: str | Path) -> Path:
        """Write the values as .json or .csv, or the picture as .png, .svg or .pdf.

        Args:
            path: File to write; one that is there is replaced whole or not at all.

        Raises:
            InputError: If the suffix is none of these, or the folder cannot be written.
        """
        path = check_file(path, _SUFFIXES)
        if path.suffix == ".json":
            return save_text(path, self.to_json() + "\n")
        if path.suffix == ".csv":
            return save_text(path, csv_text(self._table_rows()))
        return write_figure(path, self.plot())

    def _table_rows(self) -> list[dict[str, object]]:
        return [
            {"layer": name, **dict(zip(self.columns, row, strict=True))}
            for name, row in zip(self.rows, self.record.values, strict=True)
        ]

    def _repr_html_(self) -> str:
        from ncscope.report.notebook import render_similarity_fragment

        return render_similarity_fragment(self.record)


@check_arguments
def compare_layers(
    model: nn.Module,
    loader: Iterable[Any] | Dataset[Any],
    *,
    layers: Sequence[str] | None = None,
    head: str | None = None,
    other: nn.Module | None = None,
    other_layers: Sequence[str] | None = None,
    other_head: str | None = None,
    pool: bool | None = None,
    progress: bool = True,
    process_group: Any = None,
) -> LayerSimilarity:
    """Measure the CKA between the layers of a model, or of two models on the same samples.

    The loader is read once, and the sums of `CkaMoments` are updated batch by batch, so the result
    is that of all samples at once and does not depend on the batches. The models run in evaluation
    mode and are left as they were; layers, head, pooling, masks and tokens are those of
    `measure_model`.

    Args:
        model: A classifier, as for `measure_model`.
        loader: Iterable of ``(inputs, labels)``, or of mappings with ``labels``. Labels are not
            used, but -100 leaves out a token.
        layers: Names or glob patterns of layers; by default the repeated blocks. The features that
            the head reads are always compared too: under the name of the last layer if that layer
            gives just these features, else as ``"head input"``.
        head: Name of the classifier head; by default the head is detected. For an encoder without
            a classifier, the name of its last linear layer.
        other: Second model, whose layers are the columns. It runs on the same inputs.
        other_layers: Layers of the second model; by default its repeated blocks.
        other_head: Name of the head of the second model.
        pool: Average feature maps over space, and sequences over tokens, if True; flatten both if
            False; see `measure_model`. Flattened maps of large images rarely fit: pass True.
        progress: Show a progress bar if True (on stderr, in a terminal).
        process_group: Process group of ``torch.distributed``; see `Options`. Every process needs
            samples.

    Returns:
        A matrix of CKA with ``plot``, ``to_dataframe`` and ``save``.

    Raises:
        InputError: If there are fewer than 4 samples, a head or a layer is not found, the models
            give different numbers of rows, or the sums of all pairs do not fit into memory.

    Cost: one pass of each model, and for each pair of layers $2nd_id_j$ operations and $8d_id_j$
    bytes.

    Example:
        >>> import torch, ncscope
        >>> from ncscope.models.networks.residual import ResidualNet
        >>> data = torch.utils.data.TensorDataset(torch.randn(40, 8), torch.arange(40) % 4)
        >>> loader = torch.utils.data.DataLoader(data, batch_size=16)
        >>> model = ResidualNet(in_features=8, width=16, depth=2, num_classes=4)
        >>> similarity = ncscope.compare_layers(model, loader, progress=False)
        >>> similarity.rows, round(similarity["blocks.0", "blocks.0"], 9)
        (['blocks.0', 'blocks.1'], 1.0)
    """
    sides = [ModelSide(model, layers, head)]
    if other is None and (other_layers is not None or other_head is not None):
        expected = "another model with other_layers or other_head"
        raise InputError(expected=expected, found="none", fix="pass other, or leave these out")
    if other is not None:
        sides.append(ModelSide(other, other_layers, other_head))
    record = layer_similarity(
        sides, loader, pool=pool, progress=progress, process_group=process_group
    )
    return LayerSimilarity(record)
