"""Cells of a zoo, made by hand or at random, without a network."""

from collections.abc import Mapping, Sequence

from ncscope_lab.experiments.transfer.cells import ALL, Cell


def cells_on(target: str, *, images: str = ALL, **columns: Sequence[float]) -> list[Cell]:
    """Return a cell for each network from columns of values; the networks are a 0, a 1, ...

    Args:
        target: Name of the target.
        images: Number of training images.
        columns: Values by key, one a network.
    """
    keys, rows = list(columns), zip(*columns.values(), strict=True)
    return [
        cell_of(f"a {number}", target, dict(zip(keys, row, strict=True)), images=images)
        for number, row in enumerate(rows)
    ]


def cell_of(network: str, target: str, values: Mapping[str, float], *, images: str = ALL) -> Cell:
    """Return a cell; the architecture is the network's name without its number."""
    architecture = network.rsplit(" ", 1)[0]
    return Cell(network, architecture, "source", target, images, values)
