"""A quick way to find that an array fits its annotation, for `tests.signatures`.

Jaxtyping parses the type of the numbers and copies the table of sizes at every check. Here an array
whose type of numbers was accepted before, and whose sizes fit, is accepted at once; jaxtyping
decides on all others, and writes the message. Annotations with anything but names and numbers of
sizes are always left to jaxtyping.
"""

from typing import Any, NamedTuple

from jaxtyping import AbstractArray

try:
    from jaxtyping._storage import get_shape_memo
except ImportError:  # another version keeps the sizes elsewhere: all is left to it
    get_shape_memo = None

_META = type(AbstractArray)
_DECIDES = _META.__instancecheck__


class Form(NamedTuple):
    """The sizes that an annotation names, and types of numbers that it was seen to accept."""

    sizes: tuple[str | int | None, ...]
    accepted: set[Any]


def form_of(annotation: Any) -> Form | None:
    """Read an annotation; None if it has more than names and numbers."""
    if not isinstance(getattr(annotation, "array_type", None), type):
        return None
    words = annotation.dim_str.split()
    if not all(word.isidentifier() or word.isdecimal() for word in words):
        return None
    sizes = (
        int(word) if word.isdecimal() else None if word.startswith("_") else word for word in words
    )
    return Form(tuple(sizes), set())


def fits(annotation: Any, value: Any) -> bool:
    """Return whether a value is an array of the annotation, and bind the sizes of its names."""
    own = annotation.__dict__
    if "form_in_tests" not in own:
        annotation.form_in_tests = form_of(annotation)
    form = own["form_in_tests"]
    if form is None:
        return _DECIDES(annotation, value)
    if isinstance(value, annotation.array_type) and value.dtype in form.accepted:
        shape, bound = value.shape, get_shape_memo()[0]
        if len(shape) == len(form.sizes):
            new: dict[str, int] = {}
            for name, size in zip(form.sizes, shape, strict=True):
                if isinstance(name, str):
                    known = bound.get(name, new.get(name))
                    if known is None:
                        new[name] = size
                    elif known != size:
                        break
                elif name is not None and name != size:
                    break
            else:
                bound.update(new)
                return True
    found = _DECIDES(annotation, value)
    if found:
        form.accepted.add(value.dtype)
    return found


def install() -> None:
    """Ask here first, in all checks of arrays."""
    if get_shape_memo is not None:
        _META.__instancecheck__ = fits
