"""Attention masks of a forward pass: which tokens of a layer are real, and which are padding."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.forward import argument_names
from ncscope.models.hooks import guard_hook, in_backward
from ncscope.models.wrappers import walk_modules

_KEEPS = "attention_mask"
_OF_DECODER = "decoder_attention_mask"
_OF_TARGET = "tgt_key_padding_mask"
_HIDES = ("src_key_padding_mask", _OF_TARGET, "key_padding_mask")
"""Arguments of torch's transformer layers: true where a token is padding."""
_MASKS = (_KEEPS, _OF_DECODER, *_HIDES)


class PassMasks:
    """Masks that a model and its parts were given in the latest forward pass.

    The mask of a layer is the one that the innermost module around it was given: a model may make
    a mask of its own for the hidden states, of another length than its input, and a decoder has
    another mask than the encoder. A module with arguments of a decoder gives ``attention_mask`` to
    its encoder alone.

    Args:
        model: Model that runs.
        names: Names of the layers whose masks will be asked for.
        of_pairs: Modules, each with the name of an argument that is no mask of samples, as
            `find_pairs` returns them.

    Example:
        >>> class Reader(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.layer = nn.Linear(2, 2)
        ...     def forward(self, x, attention_mask):
        ...         return self.layer(x)
        >>> model = Reader()
        >>> masks = PassMasks(model, ["layer"])
        >>> with masks.record():
        ...     _ = model(torch.zeros(1, 3, 2), torch.tensor([[1, 1, 0]]))
        >>> masks.mask_of("layer").tolist()
        [[True, True, False]]
    """

    def __init__(
        self,
        model: nn.Module,
        names: Iterable[str],
        of_pairs: Collection[tuple[nn.Module, str]] = (),
    ) -> None:
        modules = dict(walk_modules(model, remove_duplicate=False))
        self._model = modules[""]
        self._around = {
            name: [(path, modules[path]) for path in _ancestors(name) if path in modules]
            for name in names
        }
        self._given: dict[nn.Module, dict[str, Any]] = {}
        self._of_pairs = frozenset(of_pairs)

    @contextmanager
    def record(self, on_error: Callable[[Exception], None] | None = None) -> Iterator[None]:
        """Record the masks of the passes inside the context."""
        with ExitStack() as hooks:
            around = (module for modules in self._around.values() for _, module in modules)
            for module in dict.fromkeys(around):
                hook = guard_hook(self._record_hook(argument_names(module)), on_error)
                hooks.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
            yield

    def note(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Record the masks of a call that has just begun, of a module around a layer."""
        if any(module is around for pairs in self._around.values() for _, around in pairs):
            self._record_hook(argument_names(module))(module, args, kwargs)

    def _record_hook(self, arguments: list[str]) -> Any:
        mask_arguments = [name for name in arguments if name in _MASKS]

        def record(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            if in_backward():
                return
            # An absent mask is recorded as None: the name alone tells that a module is a decoder,
            # whose `attention_mask` is the encoder's.
            values = dict.fromkeys(mask_arguments) | dict(zip(arguments, args, strict=False))
            self._given[module] = {
                name: value
                for name, value in {**values, **kwargs}.items()
                if name in _MASKS and (module, name) not in self._of_pairs
            }

        return record

    @property
    def has_square(self) -> bool:
        """True if a mask has as many rows as columns: its rows may be tokens, not samples."""
        return any(_is_square(mask) for of in self._given.values() for mask in of.values())

    def find_pairs(self, fewer: "PassMasks") -> frozenset[tuple[nn.Module, str]]:
        """Return the square masks of pairs of tokens, such as a causal one.

        Args:
            fewer: Masks of a pass of fewer samples: those of pairs of tokens have the same shape.
        """
        return frozenset(
            (module, name)
            for module, masks in self._given.items()
            for name, mask in masks.items()
            if _is_square(mask) and _has_shape(fewer._given.get(module, {}).get(name), mask.shape)
        )

    def drop(self, of_pairs: Collection[tuple[nn.Module, str]]) -> None:
        """Leave out masks that `find_pairs` found, of this pass and of those to come."""
        self._of_pairs = frozenset(of_pairs)
        for module, name in self._of_pairs:
            self._given.get(module, {}).pop(name, None)

    def take(self, other: "PassMasks") -> None:
        """Take over the masks that others have recorded of the latest pass."""
        self._given = dict(other._given)

    def forget(self) -> None:
        """Forget the masks of the latest pass."""
        self._given.clear()

    @property
    def has_any(self) -> bool:
        """True if the model or a part around a layer was given a mask of tokens."""
        return any(_has_mask(masks) for masks in self._given.values())

    @property
    def has_mask_of_caller(self) -> bool:
        """True if the model itself was given a mask: parts may make masks of ones."""
        return _has_mask(self._given.get(self._model, {}))

    @property
    def hides_nothing(self) -> bool:
        """True if no mask hides a token; reading this waits for an accelerator."""
        return all(
            bool((~_padding(mask) if name in _HIDES else _real(mask)).all())
            for masks in self._given.values()
            for name, mask in masks.items()
            if isinstance(mask, Tensor) and mask.ndim == 2
        )

    def mask_of(self, name: str) -> Bool[Tensor, "b t"] | None:
        """Return the mask of a layer, true for real tokens; None if it was given none."""
        for path, module in self._around.get(name, ()):
            masks = self._given.get(module, {})
            mask = masks.get(_KEEPS)
            in_its_encoder = "encoder" in name.removeprefix(path).split(".")
            # A module with arguments of a decoder ends the search, even if it got no mask for the
            # target: its other masks hide tokens of the source.
            if _OF_DECODER in masks:
                mask = mask if in_its_encoder else masks[_OF_DECODER]
                return _real(mask) if isinstance(mask, Tensor) and mask.ndim == 2 else None
            if _OF_TARGET in masks and not in_its_encoder:
                mask = masks[_OF_TARGET]
                return _padding(mask).logical_not() if isinstance(mask, Tensor) else None
            if isinstance(mask, Tensor) and mask.ndim == 2:
                return _real(mask)
            for hides in _HIDES:
                mask = masks.get(hides)
                if isinstance(mask, Tensor) and mask.ndim == 2:
                    return ~_padding(mask)
        return None


def check_mask(
    masks: PassMasks, name: str, shape: torch.Size, pool: bool | None, *, strict: bool = False
) -> Tensor | None:
    """Return the mask of the tokens of a layer, or None for a layer without tokens or masks.

    Args:
        masks: Masks of the pass.
        name: Name of the layer, or of a call of the layer.
        shape: Shape of its output, batch first.
        pool: Choice of the user, see `Taps`.
        strict: Refuse a sequence that no mask fits also if the masks that the model was given hide
            nothing: those of the next pass may.

    Raises:
        InputError: If masks of the pass hide tokens, and none fits this sequence, and the sequence
            is not to be flattened whole: its padding is unknown.
    """
    if len(shape) != 3 or pool is False:
        return None
    mask = masks.mask_of(name.partition("#")[0])
    if mask is not None and mask.shape == shape[:2]:
        return mask
    if mask is None and not masks.has_any:
        return None
    # Asked last, because the answer waits for an accelerator.
    if not (strict and masks.has_mask_of_caller) and masks.hides_nothing:
        return None
    covers = "no mask of its own" if mask is None else f"a mask of {mask.shape[1]} tokens"
    raise InputError(
        expected=f"a mask that tells the padding in layer {name!r}",
        found=f"{shape[1]} positions a sample and {covers}",
        fix="give the batch a mask of these positions (for a decoder, decoder_attention_mask), "
        "leave the layer out, or pass pool=False to flatten it with its padding",
    )


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


def _has_mask(masks: Mapping[str, Any]) -> bool:
    # Masks of three or four axes are of pairs of tokens, such as a causal one.
    return any(isinstance(mask, Tensor) and mask.ndim == 2 for mask in masks.values())


def _is_square(mask: Any) -> bool:
    return isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[0] == mask.shape[1]


def _has_shape(mask: Any, shape: torch.Size) -> bool:
    return isinstance(mask, Tensor) and mask.shape == shape


def _ancestors(name: str) -> list[str]:
    """Return the names of a layer and of the modules around it, the innermost first."""
    parts = name.split(".") if name else []
    return [".".join(parts[:count]) for count in range(len(parts), -1, -1)]


def _real(mask: Tensor) -> Bool[Tensor, "b t"]:
    """Return a mask of ones and zeros, or of summands of attention scores, as a boolean one."""
    if not mask.is_floating_point():
        return mask != 0
    # Summands of attention scores are 0 for real tokens and very negative for padding, so that 0
    # means the opposite of what it means among ones. Decided without reading values, which would
    # wait for an accelerator.
    binary = ((mask == 0) | (mask == 1)).all() & (mask == 1).any()
    return torch.where(binary, mask == 1, mask >= 0)


def _padding(mask: Tensor) -> Bool[Tensor, "b t"]:
    """Return a padding mask, which is true or minus infinity at padding, as a boolean one."""
    return mask < 0 if mask.is_floating_point() else mask != 0
