"""Attention masks of a forward pass: which tokens of a layer are real, and which are padding."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from ncscope.models.forward import argument_names
from ncscope.models.hooks import guard_hook, in_backward
from ncscope.models.wrappers import walk_modules

_KEEPS = "attention_mask"
_OF_DECODER = "decoder_attention_mask"
_OF_TARGET = "tgt_key_padding_mask"
_HIDES = ("src_key_padding_mask", _OF_TARGET, "key_padding_mask")
"""Arguments of torch's transformer layers: true where a token is padding."""


class PassMasks:
    """Masks that a model and its parts were given in the latest forward pass.

    The mask of a layer is the one that the innermost module around it was given: a model may make
    a mask of its own for the hidden states, of another length than its input, and a decoder has
    another mask than the encoder. A module with arguments of a decoder gives ``attention_mask`` to
    its encoder alone.

    Args:
        model: Model that runs.
        names: Names of the layers whose masks will be asked for.

    Example:
        >>> class Reader(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.layer = nn.Linear(2, 2)
        ...     def forward(self, x, attention_mask):
        ...         return self.layer(x)
        >>> model = Reader()
        >>> masks = PassMasks(model, ["layer"])
        >>> with masks.recorded():
        ...     _ = model(torch.zeros(1, 3, 2), torch.tensor([[1, 1, 0]]))
        >>> masks.of("layer").tolist()
        [[True, True, False]]
    """

    def __init__(self, model: nn.Module, names: Iterable[str]) -> None:
        modules = dict(walk_modules(model, remove_duplicate=False))
        self._model = modules[""]
        self._around = {
            name: [(path, modules[path]) for path in _ancestors(name) if path in modules]
            for name in names
        }
        self._given: dict[nn.Module, dict[str, Any]] = {}

    @contextmanager
    def recorded(self, on_error: Callable[[Exception], None] | None = None) -> Iterator[None]:
        """Record the masks of the passes inside the context."""
        with ExitStack() as hooks:
            around = (module for modules in self._around.values() for _, module in modules)
            for module in dict.fromkeys(around):
                arguments = argument_names(module)
                keep = guard_hook(_keeper(self._given, arguments), on_error)
                handle = module.register_forward_pre_hook(keep, with_kwargs=True)
                hooks.callback(handle.remove)
            yield

    def note(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Record the masks of a call that has just begun, of a module around a layer."""
        if any(module is around for pairs in self._around.values() for _, around in pairs):
            _keeper(self._given, argument_names(module))(module, args, kwargs)

    def take(self, other: "PassMasks") -> None:
        """Take over the masks that others have recorded of the latest pass."""
        self._given = dict(other._given)

    def forget(self) -> None:
        """Forget the masks of the latest pass."""
        self._given.clear()

    @property
    def any(self) -> bool:
        """Return whether the model or a part around a layer was given a mask of tokens."""
        return any(map(_has_mask, self._given.values()))

    @property
    def of_caller(self) -> bool:
        """Return whether the model itself was given a mask: parts may make masks of ones."""
        return _has_mask(self._given.get(self._model, {}))

    @property
    def hide_nothing(self) -> bool:
        """Return whether no mask hides a token; reading this waits for an accelerator."""
        given = [(n, mask) for masks in self._given.values() for n, mask in masks.items()]
        return all(
            bool((~_padding(mask) if name in _HIDES else _real(mask)).all())
            for name, mask in given
            if isinstance(mask, Tensor) and mask.ndim == 2
        )

    def of(self, name: str) -> Bool[Tensor, "b t"] | None:
        """Return the mask of a layer, true for real tokens; None if it was given none.

        Args:
            name: Name of the layer.
        """
        for path, module in self._around.get(name, ()):
            given = self._given.get(module, {})
            mask = given.get(_KEEPS)
            if _OF_DECODER in given:
                inside = "encoder" in name.removeprefix(path).split(".")
                mask = mask if inside else given[_OF_DECODER]
                return _real(mask) if isinstance(mask, Tensor) and mask.ndim == 2 else None
            if _OF_TARGET in given and "encoder" not in name.removeprefix(path).split("."):
                mask = given[_OF_TARGET]
                return _padding(mask).logical_not() if isinstance(mask, Tensor) else None
            if isinstance(mask, Tensor) and mask.ndim == 2:
                return _real(mask)
            for hides in _HIDES:
                mask = given.get(hides)
                if isinstance(mask, Tensor) and mask.ndim == 2:
                    return ~_padding(mask)
        return None


def in_encoder(model: nn.Module, name: str, head: str) -> bool:
    """Return whether a layer is in the encoder of a model whose head reads the decoder.

    Args:
        model: Model with a head on tokens.
        name: Name of the layer.
        head: Name of the head.
    """
    modules = dict(walk_modules(model, remove_duplicate=False))
    for path in _ancestors(name):
        inside = name.removeprefix(path).strip(".").split(".")
        children = dict(modules[path].named_children()) if path in modules else {}
        if inside[0] == "encoder" and {"encoder", "decoder"} <= children.keys():
            return not head.removeprefix(path).strip(".").startswith("encoder")
    return False


def _has_mask(given: Mapping[str, Any]) -> bool:
    return any(isinstance(mask, Tensor) and mask.ndim == 2 for mask in given.values())


def _ancestors(name: str) -> list[str]:
    """Return the names of a layer and of the modules around it, the innermost first."""
    parts = name.split(".") if name else []
    return [".".join(parts[:count]) for count in range(len(parts), -1, -1)]


def _keeper(kept: dict[nn.Module, dict[str, Any]], arguments: list[str]) -> Any:
    wanted = [name for name in arguments if name in (_KEEPS, _OF_DECODER, *_HIDES)]

    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if in_backward():
            return
        given = dict.fromkeys(wanted) | dict(zip(arguments, args, strict=False))
        kept[module] = {
            name: value
            for name, value in {**given, **kwargs}.items()
            if name in (_KEEPS, _OF_DECODER, *_HIDES)
        }

    return keep


def _real(mask: Tensor) -> Bool[Tensor, "b t"]:
    """Return a mask of ones and zeros, or of summands of attention scores, as a boolean one."""
    if not mask.is_floating_point():
        return mask != 0
    # Without reading values, which would wait for an accelerator. Summands are 0 for real tokens.
    binary = ((mask == 0) | (mask == 1)).all() & (mask == 1).any()
    return torch.where(binary, mask == 1, mask >= 0)


def _padding(mask: Tensor) -> Bool[Tensor, "b t"]:
    """Return a padding mask, which is true or minus infinity at padding, as a boolean one."""
    return mask < 0 if mask.is_floating_point() else mask != 0
