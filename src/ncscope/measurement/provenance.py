"""Provenance of a measurement: which model, file, data and versions it was made with."""

import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from ncscope.errors import list_names

LIBRARIES = ("ncscope", "torch", "numpy")


@dataclass(frozen=True)
class Provenance:
    """Origin of measurements, shown beside them.

    Paths are kept as base names, so that a shared page names no home folder and no machine.

    Attributes:
        model: Name of the model.
        weights: Name of the weights file.
        data: Name of the data set or of the data file.
        class_names: Names of the classes, in the order of the labels.
        caller: Command or function that measured.
        seed: Seed of the run.
        split: Name of the samples that were measured; empty where there are several splits.
        versions: Version of each library and of Python.
        date: Day and time of the first measurement, UTC, to the minute.
    """

    model: str = ""
    weights: str = ""
    data: str = ""
    class_names: tuple[str, ...] = ()
    caller: str = ""
    seed: int | None = None
    split: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    date: str = ""

    def facts(self) -> dict[str, str]:
        """Return the known facts as text, by their name."""
        named = {
            "model": self.model,
            "weights": self.weights,
            "data": self.data,
            "split": self.split,
            "made by": self.caller,
            "classes": list_names(self.class_names, 20) if self.class_names else "",
            "seed": "" if self.seed is None else str(self.seed),
            "versions": ", ".join(f"{name} {number}" for name, number in self.versions.items()),
            "date": self.date and f"{self.date} UTC",
        }
        return {name: text for name, text in named.items() if text}


UNKNOWN = Provenance()
"""Provenance of which nothing is known."""


def record_provenance(
    *,
    model: str = "",
    weights: str = "",
    data: str = "",
    class_names: tuple[str, ...] = (),
    caller: str = "",
    seed: int | None = None,
    split: str = "",
) -> Provenance:
    """Return the provenance of measurements that this process makes now.

    Args:
        model: Name of the model; of an absolute path the base name is kept.
        weights: Path or address of the weights file; its base name is kept.
        data: Name of the data set, or path of the data file; the base name is kept.
        class_names: Names of the classes, in the order of the labels.
        caller: Command or function that measures.
        seed: Seed of the run.
        split: Name of the samples that are measured.
    """
    return Provenance(
        model=_base_name(model),
        weights=_base_name(weights, path=True),
        data=_base_name(data, path=" " not in data),
        class_names=tuple(class_names),
        caller=caller,
        seed=seed,
        split=split,
        versions=_versions(),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
    )


def _base_name(text: str, path: bool = False) -> str:
    """Return the base name of a path or an address; a text that is neither stays as it is.

    Args:
        text: Name, path or address.
        path: True if a relative text is a path too, as ``best/model.pt`` is, unlike the name
            ``facebook/convnext-tiny``.
    """
    if "://" in text:
        return PurePosixPath(urlsplit(text).path).name
    if path or re.match(r"[/\\~]|[A-Za-z]:[/\\]", text):
        return re.split(r"[/\\]", text.rstrip("/\\"))[-1]
    return text


def _versions() -> dict[str, str]:
    versions = {"Python": platform.python_version()}
    for library in LIBRARIES:
        # `torch.__version__` names the build of torch, which the metadata may not.
        of_module = getattr(sys.modules.get(library), "__version__", None)
        versions[library] = of_module or version(library)
    return versions
