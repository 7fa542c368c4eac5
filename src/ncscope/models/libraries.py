"""Models by name: of the catalogue, torchvision, timm and Hugging Face, and of the user's code."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ncscope.errors import InputError, import_library, list_names, say_error
from ncscope.file_kinds import describe_foreign
from ncscope.files import is_file
from ncscope.memory import check_memory
from ncscope.models.networks.catalogue import NAMES, build
from ncscope.models.own_code import explain_errors, is_own_code, make_model, open_own
from ncscope.models.weights import ModelWeights, Weights, match_head, match_names
from ncscope.network import (
    find_hub,
    find_obstacle,
    is_on_disk,
    limit_stalls,
    refuse_connection,
    use_hub_cache,
)

Picture = Any
"""A PIL image; PIL is imported by the libraries that need it."""


@dataclass(frozen=True)
class ImageClassifier:
    """A classifier of images.

    Attributes:
        model: The model.
        prepare: Function that prepares a coloured PIL image as in the model's training; None if
            the library does not define it, and the preprocessing of the data set applies.
        input_name: Name of the model's argument for the images; None for the first argument.
        has_head: True if the outputs are those of a classifier; False if they are features.
        weights: Weights from a file, by their names in the model, and how they were renamed; None
            for the weights of the library.
    """

    model: nn.Module
    prepare: Callable[[Picture], Tensor] | None
    input_name: str | None = None
    has_head: bool = True
    weights: ModelWeights | None = None


@dataclass(frozen=True)
class ModelRequest:
    """Request for a model.

    Attributes:
        name: ``torchvision:NAME``, ``timm:NAME``, ``hf:NAME`` or ``hf:FOLDER``; a network of
            `NAMES`, or the user's own code as for `open_own`, whose preprocessing is that of the
            data set. Opening the user's code runs it.
        num_classes: Number of outputs of a model whose weights are given; None for the number in
            the weights. Pretrained weights of a library have a fixed number.
        shape: Channels, height and width of the data set's images, which set the size of the
            catalogue's networks; None if they are unknown.
        weights: Weights from a file. Models of Hugging Face have theirs in their folder; a model of
            the user's code may load its own. None for the weights of the library.
        download: Let the library fetch pretrained weights from the internet if True.
        weights_from: Option that passes a file of weights, for the message that they are missing.
        trained_on: Option that names the data set on which a network of the catalogue was trained,
            for the message that weights do not fit; None if ``shape`` is that of this data set.
        arguments: Arguments of a class or function in the user's code.
    """

    name: str
    num_classes: int | None = None
    shape: tuple[int, int, int] | None = None
    weights: Weights | None = None
    download: bool = False
    weights_from: str = "--weights FILE"
    trained_on: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


def open_model(request: ModelRequest) -> ImageClassifier:
    """Open a trained classifier of images by name.

    Raises:
        InputError: If the library or name is unknown, the library is not installed, weights are
            missing, or weights do not fit. Also if the user's code fails.
    """
    name = request.name
    library, colon, inner = name.partition(":")
    openers = {"torchvision": _open_torchvision, "timm": _open_timm, "hf": _open_hugging_face}
    if is_own_code(name):
        return _open_own(request)
    if request.arguments:
        fix = "leave --model-arg out, or write a function that makes the model: net.py:make_model"
        raise InputError(expected="your own code for --model-arg", found=repr(name), fix=fix)
    if not colon:
        return _open_catalogue(request)
    if library not in openers:
        raise InputError(
            expected=f"a model of {', '.join(f'{known}:' for known in openers)} or the catalogue",
            found=repr(name),
            fix="for example timm:resnet18, hf:FOLDER or net.py:make_model",
        )
    # Models of a library do not depend on the images.
    return openers[library](replace(request, name=inner, trained_on=None))


def _open_own(request: ModelRequest) -> ImageClassifier:
    model = make_model(open_own(request.name), request.arguments, request.name)
    if request.weights is None:
        return ImageClassifier(model, None)
    with explain_errors(request.name):
        fitted = _fill_model(model, request.weights, request)
    return ImageClassifier(model, None, weights=fitted)


def _open_catalogue(request: ModelRequest) -> ImageClassifier:
    if request.name not in NAMES:
        fix = f"{_nearest(request.name, list(NAMES))}; or timm:, torchvision: or hf: and a name"
        if request.name.endswith(".py"):
            fix = f"name the class or function too: {request.name}:make_model"
        elif is_file(Path(request.name, "config.json")):
            fix = f"pass hf:{request.name}"
        elif is_file(Path(request.name)):
            fix = f"name the model, and pass --weights {request.name}"
        try:
            if import_module("timm").is_model(request.name.partition(".")[0]):
                fix = f"pass timm:{request.name}"
        except ImportError:
            pass
        raise InputError(expected="the name of a model", found=repr(request.name), fix=fix)
    if request.weights is None:
        raise _no_weights(request, f"pass {request.weights_from}")
    if request.shape is None:
        found, fix = "a loader", "name a function that makes the model: net.py:make_model"
        expected = f"images of a known size for {request.name}"
        raise InputError(expected=expected, found=found, fix=fix)
    channels, size, _ = request.shape

    def make_model(outputs: int) -> nn.Module:
        return build(request.name, outputs, in_channels=channels, image_size=size)

    model, fitted = _load_weights(make_model, request.weights, request)
    return ImageClassifier(model, None, weights=fitted)


def _open_torchvision(request: ModelRequest) -> ImageClassifier:
    models = import_library("torchvision.models")
    names = models.list_models(module=models)
    if request.name not in names:
        expected, fix = "a classifier of torchvision", _nearest(request.name, names)
        raise InputError(expected=expected, found=repr(request.name), fix=fix)
    pretrained = models.get_model_weights(request.name).DEFAULT
    prepare = pretrained.transforms()
    if request.weights is not None:

        def make_model(outputs: int) -> nn.Module:
            return models.get_model(request.name, num_classes=outputs)

        model, fitted = _load_weights(make_model, request.weights, request)
        return ImageClassifier(model, prepare, weights=fitted)
    if not request.download:
        raise _no_weights(request)
    file = Path(torch.hub.get_dir(), "checkpoints", Path(urlsplit(pretrained.url).path).name)
    with nullcontext() if file.exists() else _explain_download(request, pretrained.url):
        model = models.get_model(request.name, weights=pretrained)
    return ImageClassifier(model, prepare)


def _open_timm(request: ModelRequest) -> ImageClassifier:
    timm = import_library("timm")
    if not (timm.is_model(request.name.partition(".")[0]) or ":" in request.name):
        expected, fix = "a model of timm", _nearest(request.name, timm.list_models())
        raise InputError(expected=expected, found=repr(request.name), fix=fix)
    fitted = None
    if request.weights is not None:

        def make_model(outputs: int) -> nn.Module:
            return timm.create_model(request.name, num_classes=outputs)

        model, fitted = _load_weights(make_model, request.weights, request, headless=True)
    elif request.download:
        source = timm.get_pretrained_cfg(request.name)
        on_hub = source is None or bool(source.hf_hub_id) or not source.url
        address = find_hub() if on_hub else source.url
        with _explain_download(request, address, on_hub=on_hub):
            model = timm.create_model(request.name, pretrained=True)
    else:
        raise _no_weights(request)
    settings = timm.data.resolve_model_data_config(model)
    prepare = timm.data.create_transform(**settings, is_training=False)
    return ImageClassifier(model, prepare, has_head=bool(model.num_classes), weights=fitted)


def _open_hugging_face(request: ModelRequest) -> ImageClassifier:
    transformers = import_library("transformers")
    if request.weights is not None:
        fix = "leave --weights out, and put the weights into the model's folder"
        raise InputError(expected="weights in the folder of hf:", found="a file beside it", fix=fix)
    alone = is_on_disk(request.name, download=request.download)
    local = {"local_files_only": alone}
    for file in [*Path(request.name).glob("*.safetensors"), *Path(request.name).glob("*.bin")]:
        if described := describe_foreign(file, alone=False):
            found, fix = described
            raise InputError(expected=f"weights in {file}", found=found, fix=fix)
    try:
        with use_hub_cache() if alone else nullcontext():
            model = transformers.AutoModelForImageClassification.from_pretrained(
                request.name, **local
            )
    except (OSError, ValueError) as error:
        if kind := re.search(r"Unrecognized configuration class .*?(\w+)Config\b", str(error)):
            found = f"a {kind[1]} model, which classifies no images"
            fix = (
                "measure texts with ncscope.measure_model in Python "
                "(docs/tutorials/hugging-face.md), or name an image classifier"
            )
            raise InputError(
                expected=f"an image classifier under hf:{request.name}", found=found, fix=fix
            ) from error
        raise InputError(
            expected=f"an image classifier under hf:{request.name}",
            found=say_error(error),
            fix="name a folder that save_pretrained wrote, or pass --download",
        ) from error
    try:
        with use_hub_cache() if alone else nullcontext():
            processor = transformers.AutoImageProcessor.from_pretrained(request.name, **local)
    except (OSError, ValueError):  # the trainer writes none unless it was given one
        return ImageClassifier(model, None, "pixel_values")

    def prepare(picture: Picture) -> Tensor:
        pixels: Tensor = processor(images=picture, return_tensors="pt")["pixel_values"][0]
        return pixels

    return ImageClassifier(model, prepare, "pixel_values")


@contextmanager
def _explain_download(
    request: ModelRequest, address: str, *, on_hub: bool = False
) -> Iterator[None]:
    """Let a library fetch weights, or say at once that their server does not answer.

    Args:
        request: Request for the model.
        address: Address of the weights.
        on_hub: The Hugging Face Hub has the weights; without an answer, its cache is read.
    """
    obstacle = find_obstacle(address)
    try:
        if obstacle and not on_hub:
            raise ConnectionError(obstacle)
        with use_hub_cache() if obstacle else limit_stalls():
            yield
    except OSError as error:
        fix = f"pass {request.weights_from} with weights fetched elsewhere"
        said = obstacle or say_error(error)
        purpose = f"the weights of {request.name}"
        raise refuse_connection(address, purpose, said, fix) from error


def _nearest(name: str, known: Sequence[str]) -> str:
    (nearest,) = get_close_matches(name.lower(), known, n=1, cutoff=0.0)
    return f"the nearest is {nearest}"


def _no_weights(request: ModelRequest, fix: str | None = None) -> InputError:
    fix = fix or f"pass {request.weights_from}, or --download for the library's own"
    return InputError(expected=f"weights of {request.name}", found="none", fix=fix)


Shapes = Mapping[str, tuple[int, ...]]

_TRIED = 2
"""Number of outputs of a trial model, which shows the weights whose shape depends on it."""

"""Names of a file that an error message lists."""


def _load_weights(
    make_model: Callable[[int], nn.Module],
    weights: Weights,
    request: ModelRequest,
    *,
    headless: bool = False,
) -> tuple[nn.Module, ModelWeights]:
    """Make a model and load weights into it, under their names in the model.

    Args:
        make_model: Function that makes the model with a given number of outputs.
        weights: Weights of the model.
        request: Request for the model.
        headless: True if the function makes a model without a head for 0 outputs.

    Raises:
        InputError: If names or shapes differ; the message names the first difference. Also if the
            weights hold several models of these names.
    """
    model = make_model(_TRIED if request.num_classes is None else request.num_classes)
    model_shapes = _shapes(model.state_dict())
    fitted = match_names(weights, model_shapes)
    file_shapes = _shapes(fitted.tensors)
    outputs = None
    if request.num_classes is None:
        outputs = _count_outputs(model_shapes, file_shapes, headless)
    if outputs is not None:
        # A damaged file may announce any number of outputs: the head may not fit into memory.
        each = sum(prod(shape[1:]) for shape in model_shapes.values() if shape[:1] == (_TRIED,))
        check_memory(
            each * outputs * torch.get_default_dtype().itemsize,
            f"a head of {request.name} with {outputs:,} outputs",
            "check the file, or name the model that was saved",
        )
        model = make_model(outputs)
        model_shapes = _shapes(model.state_dict())
    return model, _fill_model(model, weights, request)


def _fill_model(model: nn.Module, weights: Weights, request: ModelRequest) -> ModelWeights:
    """Load weights into a model, under their names in the model.

    Raises:
        InputError: If names or shapes differ; the message names the first difference. Also if the
            weights hold several models of these names.
    """
    model_shapes = _shapes(model.state_dict())
    fitted = match_head(match_names(weights, model_shapes), weights, model_shapes)
    file_shapes = _shapes(fitted.tensors)
    faults, failure = [], ""
    # Torch judges what fits: some layers load older names, and batch norm does without a count.
    try:
        for names in model.load_state_dict(dict(fitted.tensors), strict=False) or ():
            faults += [name for name in names if not name.endswith("_extra_state")]
    except RuntimeError as error:
        failure = say_error(error)
        faults = [
            key
            for key in [*model_shapes, *file_shapes]
            if model_shapes.get(key) != file_shapes.get(key)
            and not key.endswith("num_batches_tracked")
        ]
    if not faults and not failure:
        return fitted
    if not faults:
        fix = _remedy(request, None, None)
        raise InputError(expected=f"weights of {request.name}", found=failure, fix=fix)
    key = faults[0]
    beside = _shapes({name: weights[name] for name in fitted.unused if name in weights})
    all_shapes = {**beside, **file_shapes}
    others = [n for n in [*file_shapes, *beside] if n in beside or n not in model_shapes]
    # What may be the lacking entry under another name comes first.
    others.sort(key=lambda name: all_shapes[name] != model_shapes.get(key))
    examples = ""
    if key not in file_shapes and others:
        examples = f", but {list_names(others, 3)}"
    raise InputError(
        expected=f"weights of {request.name}: {_entry(key, model_shapes)}",
        found=_entry(key, file_shapes) + examples,
        fix=_remedy(request, model_shapes.get(key), file_shapes.get(key)),
    )


def _remedy(
    request: ModelRequest, in_model: tuple[int, ...] | None, in_file: tuple[int, ...] | None
) -> str:
    """Return the remedy for weights that do not fit.

    Args:
        request: Request for the model.
        in_model: Shape of the first unlike entry in the model; None without the entry.
        in_file: Shape of the entry in the weights. If both have the entry, with different shapes,
            the images of the training may have had another shape, or the head another number of
            outputs.
    """
    if is_own_code(request.name):
        return (
            "pass the arguments of the model that was saved with --model-arg, or load the weights "
            "in the function that makes the model, without --weights"
        )
    in_both = in_model is not None and in_file is not None
    head = in_both and in_model == (request.num_classes, *(in_file or ())[1:])
    asked = "; --num-classes sets its outputs" if head else ""
    name_it = "name the model that was saved" + asked
    if request.trained_on is None:
        return name_it
    images = f"name with {request.trained_on} the images that it was trained on"
    return f"{images}, or {name_it}" if in_both else f"{name_it}, or {images}"


def _count_outputs(in_model: Shapes, in_file: Shapes, headless: bool) -> int | None:
    """Return the number of outputs of the weights; None if their shapes do not tell."""
    missing = [shape for key, shape in in_model.items() if key not in in_file]
    if headless and missing and all(shape[:1] == (_TRIED,) for shape in missing):
        return 0
    sizes = {
        in_file[key][:1]
        for key, shape in in_model.items()
        if shape[:1] == (_TRIED,) and key in in_file
    }
    other = sizes - {(), (_TRIED,)}
    return other.pop()[0] if len(other) == 1 else None


def _shapes(weights: Mapping[str, Tensor]) -> Shapes:
    # Of a lazy layer the shape is unknown until weights are loaded; an extra state may be anything.
    return {
        key: tuple(value.shape)
        for key, value in weights.items()
        if isinstance(value, Tensor) and not is_lazy(value)
    }


def _entry(key: str, shapes: Shapes) -> str:
    return f"{key} of shape {shapes[key]}" if key in shapes else f"no {key}"
