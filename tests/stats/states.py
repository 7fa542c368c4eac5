"""State of class moments without the choice of their pilot."""

from collections.abc import Mapping

from torch import Tensor


def with_means(state: Mapping[str, Tensor], about: float = 0.0) -> dict[str, Tensor]:
    """Add up pilot, which the first batch chooses, and offsets; less a number, to keep digits."""
    others = {name: value for name, value in state.items() if name not in ("pilot", "offsets")}
    present = (state["counts"] > 0)[:, None]
    return others | {"means": (state["pilot"] - about + state["offsets"]).where(present, 0.0)}
