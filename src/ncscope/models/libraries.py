"""Models by name: networks of the catalogue, and models of torchvision, timm and Hugging Face."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ncscope.errors import InputError, missing_library
from ncscope.memory import check_memory
from ncscope.models.networks.catalogue import NAMES, build
from ncscope.models.weights import ModelWeights, Weights, match_names

Picture = Any
"""A PIL image; PIL is imported by the libraries that need it."""


@dataclass(frozen=True)
class ImageClassifier:
    """A classifier of images.

    Attributes:
        model: The model.
        prepared: Function that prepares a coloured PIL image as in the model's training; None if
            the library does not define it, and the preprocessing of the data set applies.
        input_name: Name of the model's argument for the images; None for the first argument.
        has_head: True if the outputs are those of a classifier; False if they are features.
        weights: Weights from a file, by their names in the model, and how they were renamed; None
            for the weights of the library.
    """

    model: nn.Module
    prepared: Callable[[Picture], Tensor] | None
    input_name: str | None = None
    has_head: bool = True
    weights: ModelWeights | None = None


@dataclass(frozen=True)
class Wanted:
    """Request for a model.

    Attributes:
        name: Name of the model in its library.
        num_classes: Number of outputs of a model with weights from a file; None for the number in
            the weights.
        shape: Channels, height and width of the data set's images.
        weights: Weights from a file; None for the weights of the library.
        download: Let the library fetch weights from the internet if True.
        weights_from: Option that passes a file of weights, for error messages.
        trained_on: Option that names the data set of the model's training, for error messages; None
            if the model was trained on the data set.
    """

    name: str
    num_classes: int | None
    shape: tuple[int, int, int]
    weights: Weights | None
    download: bool
    weights_from: str
    trained_on: str | None


def open_model(
    name: str,
    num_classes: int | None,
    shape: tuple[int, int, int],
    *,
    weights: Weights | None = None,
    download: bool = False,
    weights_from: str = "--weights FILE",
    trained_on: str | None = None,
) -> ImageClassifier:
    """Open a trained classifier of images by name.

    Args:
        name: ``torchvision:NAME``, ``timm:NAME``, ``hf:NAME`` or ``hf:FOLDER``, or a network of
            `NAMES`, whose preprocessing is that of the data set.
        num_classes: Number of outputs of a model whose weights are given; None for the number in
            the weights. Pretrained weights of a library have a fixed number.
        shape: Channels, height and width of the data set's images; sets the size of the
            catalogue's networks.
        weights: Weights of the model. Models of Hugging Face have their weights in their folder.
        download: Let the library fetch pretrained weights if True.
        weights_from: Option that passes a file of weights, for the message that weights are
            missing.
        trained_on: Option that names the data set on which a network of the catalogue was trained,
            for the message that weights do not fit; None if ``shape`` is that of this data set.

    Raises:
        InputError: If the library or name is unknown, the library is not installed, weights are
            missing, or weights do not fit.
    """
    library, colon, inner = name.partition(":")
    openers = {"torchvision": _torchvision, "timm": _timm, "hf": _hugging_face}
    if colon and library not in openers:
        raise InputError(
            expected=f"a model of {', '.join(f'{known}:' for known in openers)} or the catalogue",
            found=repr(name),
            fix="for example timm:resnet18, or hf:FOLDER",
        )
    opener = openers[library] if colon else _catalogue
    inner = inner if colon else name
    images_from = None if colon else trained_on  # models of a library do not depend on the images
    return opener(Wanted(inner, num_classes, shape, weights, download, weights_from, images_from))


def _catalogue(wanted: Wanted) -> ImageClassifier:
    if wanted.name not in NAMES:
        fix = f"{_nearest(wanted.name, list(NAMES))}; or timm:, torchvision: or hf: and a name"
        if _in_timm(wanted.name):
            fix = f"pass timm:{wanted.name}"
        raise InputError(expected="the name of a model", found=repr(wanted.name), fix=fix)
    if wanted.weights is None:
        raise _no_weights(wanted, f"pass {wanted.weights_from}")
    channels, size, _ = wanted.shape

    def made(outputs: int) -> nn.Module:
        return build(wanted.name, outputs, in_channels=channels, image_size=size)

    model, fitted = _filled(made, wanted.weights, wanted)
    return ImageClassifier(model, None, weights=fitted)


def _torchvision(wanted: Wanted) -> ImageClassifier:
    models = _library("torchvision.models")
    known = models.list_models(module=models)
    if wanted.name not in known:
        expected, fix = "a classifier of torchvision", _nearest(wanted.name, known)
        raise InputError(expected=expected, found=repr(wanted.name), fix=fix)
    pretrained = models.get_model_weights(wanted.name).DEFAULT
    prepared = pretrained.transforms()
    if wanted.weights is not None:

        def made(outputs: int) -> nn.Module:
            return models.get_model(wanted.name, num_classes=outputs)

        model, fitted = _filled(made, wanted.weights, wanted)
        return ImageClassifier(model, prepared, weights=fitted)
    if not wanted.download:
        raise _no_weights(wanted)
    return ImageClassifier(models.get_model(wanted.name, weights=pretrained), prepared)


def _timm(wanted: Wanted) -> ImageClassifier:
    timm = _library("timm")
    if not (timm.is_model(wanted.name.partition(".")[0]) or ":" in wanted.name):
        expected, fix = "a model of timm", _nearest(wanted.name, timm.list_models())
        raise InputError(expected=expected, found=repr(wanted.name), fix=fix)
    fitted = None
    if wanted.weights is not None:

        def made(outputs: int) -> nn.Module:
            return timm.create_model(wanted.name, num_classes=outputs)

        model, fitted = _filled(made, wanted.weights, wanted, headless=True)
    elif wanted.download:
        model = timm.create_model(wanted.name, pretrained=True)
    else:
        raise _no_weights(wanted)
    settings = timm.data.resolve_model_data_config(model)
    prepared = timm.data.create_transform(**settings, is_training=False)
    return ImageClassifier(model, prepared, has_head=bool(model.num_classes), weights=fitted)


def _hugging_face(wanted: Wanted) -> ImageClassifier:
    transformers = _library("transformers")
    if wanted.weights is not None:
        fix = "leave --weights out, and put the weights into the model's folder"
        raise InputError(expected="weights in the folder of hf:", found="a file beside it", fix=fix)
    local = {"local_files_only": not wanted.download}
    try:
        model = transformers.AutoModelForImageClassification.from_pretrained(wanted.name, **local)
    except (OSError, ValueError) as error:
        raise InputError(
            expected=f"an image classifier under hf:{wanted.name}",
            found=" ".join(str(error).split())[:200],
            fix="name a folder that save_pretrained wrote, or pass --download",
        ) from error
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(wanted.name, **local)
    except (OSError, ValueError):  # the trainer writes none unless it was given one
        return ImageClassifier(model, None, "pixel_values")

    def prepared(picture: Picture) -> Tensor:
        pixels: Tensor = processor(images=picture, return_tensors="pt")["pixel_values"][0]
        return pixels

    return ImageClassifier(model, prepared, "pixel_values")


def _in_timm(name: str) -> bool:
    """Return whether timm is installed and has a model of this name."""
    try:
        return bool(import_module("timm").is_model(name.partition(".")[0]))
    except ImportError:
        return False


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise missing_library(name.partition(".")[0]) from error


def _nearest(name: str, known: Sequence[str]) -> str:
    (nearest,) = get_close_matches(name.lower(), known, n=1, cutoff=0.0)
    return f"the nearest is {nearest}"


def _no_weights(wanted: Wanted, fix: str | None = None) -> InputError:
    fix = fix or f"pass {wanted.weights_from}, or --download for the library's own"
    return InputError(expected=f"weights of {wanted.name}", found="none", fix=fix)


Shapes = Mapping[str, tuple[int, ...]]


def _filled(
    made: Callable[[int], nn.Module], weights: Weights, wanted: Wanted, *, headless: bool = False
) -> tuple[nn.Module, ModelWeights]:
    """Make a model and load weights into it, under their names in the model.

    Args:
        made: Function that makes the model with a given number of outputs.
        weights: Weights of the model.
        wanted: Request for the model.
        headless: True if the function makes a model without a head for 0 outputs.

    Raises:
        InputError: If names or shapes differ; the message names the first difference. Also if the
            weights hold several models of these names.
    """
    model = made(_TRIED if wanted.num_classes is None else wanted.num_classes)
    own = _shapes(model.state_dict())
    fitted = match_names(weights, own)
    found = _shapes(fitted.tensors)
    outputs = None if wanted.num_classes is not None else _outputs(own, found, headless)
    if outputs is not None:
        _check_outputs(wanted, own, outputs)
        model = made(outputs)
        own = _shapes(model.state_dict())
    for key in [*own, *found]:
        if own.get(key) != found.get(key):
            raise InputError(
                expected=f"weights of {wanted.name}: {_entry(key, own)}",
                found=_entry(key, found) + _others(key, own, found),
                fix=_remedy(wanted, own.get(key), found.get(key)),
            )
    model.load_state_dict(dict(fitted.tensors))
    return model, fitted


_MOST_NAMED = 3


def _others(key: str, own: Shapes, found: Shapes) -> str:
    """Return examples of the names in the file, if it lacks an entry of the model."""
    others = [name for name in found if name not in own]
    if key in found or not others:
        return ""
    shown = ", ".join(name[:80] for name in others[:_MOST_NAMED])
    return f", but {shown}{', ...' if len(others) > _MOST_NAMED else ''}"


_Shape = tuple[int, ...]


def _remedy(wanted: Wanted, own: _Shape | None, found: _Shape | None) -> str:
    """Return the remedy for weights that do not fit.

    Args:
        wanted: Request for the model.
        own: Shape of the first unlike entry in the model; None without the entry.
        found: Shape of the entry in the weights. If both have it with different shapes, the images
            of the training may have had another shape, or the head another number of outputs.
    """
    known = own is not None and found is not None
    head = known and own == (wanted.num_classes, *(found or ())[1:])
    asked = "; --num-classes sets its outputs" if head else ""
    named = "name the model that was saved" + asked
    if wanted.trained_on is None:
        return named
    images = f"name with {wanted.trained_on} the images that it was trained on"
    return f"{images}, or {named}" if known else f"{named}, or {images}"


_TRIED = 2
"""Number of outputs of a trial model, which shows the weights whose shape depends on it."""


def _outputs(own: Shapes, found: Shapes, headless: bool) -> int | None:
    """Return the number of outputs of the weights; None if their shapes do not tell."""
    missing = [shape for key, shape in own.items() if key not in found]
    if headless and missing and all(shape[:1] == (_TRIED,) for shape in missing):
        return 0
    sizes = {
        found[key][:1] for key, shape in own.items() if shape[:1] == (_TRIED,) and key in found
    }
    other = sizes - {(), (_TRIED,)}
    return other.pop()[0] if len(other) == 1 else None


def _check_outputs(wanted: Wanted, own: Shapes, outputs: int) -> None:
    """Refuse a head that does not fit into memory: a damaged file may announce any number."""
    each = sum(prod(shape[1:]) for shape in own.values() if shape[:1] == (_TRIED,))
    head = f"a head of {wanted.name} with {outputs:,} outputs"
    fix = "check the file, or name the model that was saved"
    check_memory(each * outputs * torch.get_default_dtype().itemsize, head, fix)


def _shapes(weights: Mapping[str, Tensor]) -> Shapes:
    return {key: tuple(value.shape) for key, value in weights.items()}


def _entry(key: str, shapes: Shapes) -> str:
    return f"{key} of shape {shapes[key]}" if key in shapes else f"no {key}"
