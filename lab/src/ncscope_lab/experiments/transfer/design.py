"""Protocol of the zoo: its networks, sources and targets, and which of them serve for design.

Training settings and the index are chosen on the *design half*: networks of the design
architectures on the design targets. Scores are judged on the *report half*: all networks on the
report targets, and beside this the networks of the held-out architectures alone. A network's own
source is never its target. The protocol was written, and committed, before any result of the report
half was looked at.
"""

import random
from collections.abc import Sequence
from typing import Any

from pydantic import Field, model_validator

from ncscope_lab.runs.settings import Config
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training

DECAYS = (0.0, 5e-4, 5e-3)
AUGMENTATIONS = ("none", "crop")
LOSSES: Sequence[dict[str, Any]] = (
    {},
    {"temperature": 0.3},
    {"temperature": 3.0},
    {"label_smoothing": 0.2},
    {"within_class_cosine": 1.0, "cosine_group": 32},
    {"loss": "mse"},
)
"""Cross-entropy, with other temperatures, smoothed, with a cosine penalty; squared error."""

TARGET_SEED = 10_000
"""Seed of the targets, the same for all networks, whose own seeds are smaller."""

TUNED = 3
"""Fine-tuning is the truth of one cell in so many."""

_SAME_IMAGES = {"warped-digits": ("digits",)}
_RATES = {"small-residual": 0.003}
_RATE = 0.03
_ATTENTION_RATE = 5e-4


class TransferZoo(Config):
    """Settings of the zoo."""

    design_architectures: tuple[str, ...] = Field(
        (
            "small-conv",
            "small-residual",
            "small-resnet",
            "small-resnet-384",
            "small-vgg",
        ),
        min_length=1,
        description="Architectures of the design half.",
    )
    held_out_architectures: tuple[str, ...] = Field(
        ("small-densenet", "small-wrn", "small-vit"),
        description="Architectures that only the report half has.",
    )
    networks: int = Field(16, ge=2, description="Networks of each architecture.")
    epochs: tuple[int, ...] = Field(
        (4, 8, 16, 32), min_length=1, description="Lengths of the pretraining."
    )
    image_size: int = Field(16, ge=16, description="Pixels per side.")
    sources: tuple[str, ...] = Field(
        ("patterns-20", "warped-digits", "gratings"),
        min_length=1,
        description="Sets for pretraining; each is a report target of the other networks.",
    )
    design_targets: tuple[str, ...] = Field(
        (
            "transfer-clear",
            "transfer-cluttered",
            "transfer-noisy",
            "gratings-orientation",
            "gratings-frequency",
        ),
        min_length=1,
        description="Targets of the design half.",
    )
    report_targets: tuple[str, ...] = Field(
        (
            "transfer-both",
            "transfer-many",
            "gratings-colour",
            "gratings-orientation-colour",
            "digits",
            "patterns-20",
            "warped-digits",
            "gratings",
        ),
        min_length=1,
        description="Targets of the report half.",
    )
    tuning_epochs: int = Field(8, ge=1, description="Epochs of fine-tuning.")
    shard: int = Field(0, ge=0, description="Number of the part of the zoo to train, from 0.")
    shards: int = Field(1, ge=1, description="Parts of the zoo, for several machines or cores.")

    @model_validator(mode="after")
    def _check_names(self) -> "TransferZoo":
        for names in (self.targets, self.architectures, self.sources):
            if len({*names}) < len(names):
                msg = f"each name once, in one half only, among {', '.join(names)}"
                raise ValueError(msg)
        if self.shard >= self.shards:
            msg = f"shard 0 to {self.shards - 1}"
            raise ValueError(msg)
        return self

    @property
    def architectures(self) -> tuple[str, ...]:
        """All architectures."""
        return self.design_architectures + self.held_out_architectures

    @property
    def targets(self) -> tuple[str, ...]:
        """All targets."""
        return self.design_targets + self.report_targets


def list_networks(config: TransferZoo) -> dict[str, Training]:
    """Return the networks' training settings, drawn so that values are used equally often.

    Source, loss, length, decay and augmentation are each shuffled by themselves within an
    architecture, so that none goes with another. Every network has a seed of its own.

    Args:
        config: Settings of the zoo; its shard has no effect.

    Example:
        >>> found = list_networks(TransferZoo())
        >>> len(found), len({each.seed for each in found.values()})
        (128, 128)
    """
    draws = random.Random(0)
    found: dict[str, Training] = {}
    for architecture in config.architectures:
        columns: list[list[Any]] = []
        for values in (config.sources, LOSSES, config.epochs, DECAYS, AUGMENTATIONS):
            columns.append([values[index % len(values)] for index in range(config.networks)])
            draws.shuffle(columns[-1])
        for index, (source, loss, epochs, decay, augmentation) in enumerate(
            zip(*columns, strict=True)
        ):
            attention = architecture.endswith("vit") or architecture.startswith("deit")
            optimisation = Optimisation(
                epochs=epochs,
                batch_size=64,
                optimiser="adamw" if attention else "sgd",
                learning_rate=_ATTENTION_RATE if attention else _RATES.get(architecture, _RATE),
                weight_decay=decay,
                schedule="cosine",
            )
            found[f"{architecture} {index}"] = Training(
                data=source,
                network=architecture,
                image_size=config.image_size,
                augmentation=augmentation,
                optimisation=optimisation,
                every=epochs,
                layers=(),
                groups=("nc1", "nc4"),
                seed=len(found),
            ).model_copy(update=loss)
    return found


def list_targets(source: str, targets: Sequence[str]) -> list[str]:
    """Return the targets of a network: all but its own source and sets of the same images.

    Args:
        source: Name of the set that the network was trained on.
        targets: Names of the targets.

    Example:
        >>> list_targets("warped-digits", ["digits", "warped-digits", "gratings"])
        ['gratings']
    """
    same = _SAME_IMAGES.get(source, ())
    return [name for name in targets if name != source and name not in same]


def is_tuned(network: int, target: int) -> bool:
    """Return whether a cell is in the third for which the truth by fine-tuning is measured.

    Args:
        network: Number of the network, in the order of `list_networks`.
        target: Number of the target, in the order of `TransferZoo.targets`.
    """
    return (network + target) % TUNED == 0
