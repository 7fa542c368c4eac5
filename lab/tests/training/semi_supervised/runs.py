"""Short runs with few labels."""

from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.semi_supervised.methods import method as method_of
from ncscope_lab.training.semi_supervised.settings import FewLabels
from ncscope_lab.training.semi_supervised.thresholds import Trust


def short(method: str = "freematch", **given) -> FewLabels:
    """Two epochs of three steps on digits."""
    optimisation = Optimisation(
        epochs=2, batch_size=20, optimiser="nesterov", learning_rate=0.05, schedule="cosine-7/16",
        average=0.9,
    )  # fmt: skip
    settings = {
        "data": "digits",
        "network": "small-conv",
        "labels": 10,
        "steps_per_epoch": 3,
        "ratio": 2,
        "every": 2,
        "views": "warp",
        "memory": 0.9,
        "layers": (),
        "groups": ("nc4",),
        "optimisation": optimisation,
    }
    return FewLabels(method=method, **settings | given)


def trust(settings: FewLabels, num_classes: int) -> Trust:
    """The rule of the method that the settings select."""
    method = method_of(settings, num_classes, count=12)
    assert method is not None
    return method.trust
