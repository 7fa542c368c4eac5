"""Protocol of the zoo: its networks, sources and targets, and which of them serve for design.

Scores are chosen and combined, and training settings are chosen, on the *design half*: networks of
the design architectures on the design targets. Scores are judged on the *report half*: all networks
on the report targets, and beside this the networks of the held-out architectures alone. A network's
own source is never its target. The protocol was written before any result of the report half was
looked at.
"""

import random
from collections.abc import Sequence
from typing import Any

from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training

DESIGN_ARCHITECTURES = (
    "small-conv",
    "small-residual",
    "small-resnet",
    "small-resnet-384",
    "small-vgg",
)
HELD_OUT_ARCHITECTURES = ("small-densenet", "small-wrn", "small-vit")
ARCHITECTURES = (*DESIGN_ARCHITECTURES, *HELD_OUT_ARCHITECTURES)

SOURCES = ("patterns-20", "warped-digits", "gratings")
"""Sets on which networks are trained; each is a target of the networks of the other two."""

DESIGN_TARGETS = (
    "transfer-clear",
    "transfer-cluttered",
    "transfer-noisy",
    "gratings-orientation",
    "gratings-frequency",
)
REPORT_TARGETS = (
    "transfer-both",
    "transfer-many",
    "gratings-colour",
    "gratings-orientation-colour",
    "digits",
    *SOURCES,
)
TARGETS = (*DESIGN_TARGETS, *REPORT_TARGETS)

_SAME_IMAGES = {"warped-digits": ("digits",)}

TARGET_SEED = 10_000
"""Seed of the targets, the same for all networks, whose own seeds are smaller."""

PER_ARCHITECTURE = 16
"""Networks of each architecture: 128 in all."""

EPOCHS = (4, 8, 16, 32)
DECAYS = (0.0, 5e-4, 5e-3)
AUGMENTATIONS = ("none", "crop")
LOSSES: Sequence[dict[str, Any]] = (
    {},
    {"temperature": 0.3},
    {"temperature": 3.0},
    {"label_smoothing": 0.2},
    {"within_class_cosine": 2.5, "cosine_group": 32},
    {"loss": "mse"},
)
"""Cross-entropy, with other temperatures, smoothed, with a cosine penalty; squared error."""

_RATES = {"small-vit": 2e-3, "small-residual": 0.01}
_RATE = 0.03


def networks(number: int = PER_ARCHITECTURE, seed: int = 0) -> dict[str, Training]:
    """Return the networks' training settings, drawn so that every value is used equally often.

    Source, loss, length, decay and augmentation are each shuffled by themselves within an
    architecture, so that none goes with another. Every network has a seed of its own.

    Args:
        number: Number of networks of each architecture.
        seed: Seed of the draws.

    Example:
        >>> found = networks()
        >>> len(found), len({each.seed for each in found.values()})
        (128, 128)
    """
    draws = random.Random(seed)
    found: dict[str, Training] = {}
    for architecture in ARCHITECTURES:
        columns = [
            _shuffled(values, number, draws)
            for values in (SOURCES, LOSSES, EPOCHS, DECAYS, AUGMENTATIONS)
        ]
        for index, (source, loss, epochs, decay, augmentation) in enumerate(
            zip(*columns, strict=True)
        ):
            optimisation = Optimisation(
                epochs=epochs,
                batch_size=64,
                optimiser="adamw" if architecture == "small-vit" else "sgd",
                learning_rate=_RATES.get(architecture, _RATE),
                weight_decay=decay,
                schedule="cosine",
            )
            found[f"{architecture} {index}"] = Training(
                data=source,
                network=architecture,
                image_size=16,
                augmentation=augmentation,
                optimisation=optimisation,
                every=epochs,
                layers=(),
                groups=("nc1", "nc4"),
                seed=len(found),
            ).model_copy(update=loss)
    return found


def _shuffled(values: Sequence[Any], number: int, draws: random.Random) -> list[Any]:
    """Return each value equally often, up to one, in random order."""
    repeated = [values[index % len(values)] for index in range(number)]
    draws.shuffle(repeated)
    return repeated


def targets_of(source: str, targets: Sequence[str] = TARGETS) -> list[str]:
    """Return the targets of a network: all but its own source and sets of the same images.

    Args:
        source: Name of the set that the network was trained on.
        targets: Names of the targets.

    Example:
        >>> "digits" in targets_of("warped-digits")
        False
    """
    same = _SAME_IMAGES.get(source, ())
    return [name for name in targets if name != source and name not in same]


def is_tuned(network: int, target: int) -> bool:
    """Return whether a cell is in the third for which the truth by fine-tuning is measured.

    Args:
        network: Number of the network, in the order of `networks`.
        target: Number of the target, in the order of `TARGETS`.
    """
    return (network + target) % 3 == 0
