"""Settings by name, checked against the settings class of an experiment."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from ncscope.errors import InputError

AnyConfig = TypeVar("AnyConfig", bound=BaseModel)


class Config(BaseModel):
    """Settings with no field but those that the class names, which do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def check_settings(kind: type[AnyConfig], values: Mapping[str, Any]) -> AnyConfig:
    """Return an experiment's settings, with the default for every field without a value.

    Raises:
        InputError: If a field is unknown (the message names the nearest field), or a value is
            out of bounds.
    """
    for name in values:
        if name not in kind.model_fields:
            raise _refuse_field(name, list(kind.model_fields))
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise _bad_value(kind, error) from error


def change_settings(config: AnyConfig, changes: Mapping[str, Any]) -> AnyConfig:
    """Replace some fields of settings.

    Args:
        config: Settings to start from.
        changes: Values by dotted name, for example ``runs.digits.optimisation.epochs``: each
            part of a name is a field of settings or a key of a dictionary. A ``*`` stands for any
            text, so that ``runs.*.optimisation.epochs`` changes all runs. The value of a dictionary
            is a pattern of the keys to keep: ``{"runs": "*, seed 7"}`` leaves out the other runs.

    Raises:
        InputError: As for `check_settings`, or if a pattern keeps nothing.
    """
    whole = config.model_dump()
    changes = dict(changes)
    for name in [name for name in changes if isinstance(dict(config).get(name), dict)]:
        pattern, keys = changes.pop(name), list(whole[name])
        kept = _match(pattern, keys) if isinstance(pattern, str) else []
        if not kept:
            (nearest,) = get_close_matches(str(pattern), keys, n=1, cutoff=0.0)
            expected = f"{name} as a pattern of the names to keep, of {len(keys)}"
            raise InputError(
                expected=expected, found=repr(pattern), fix=f"the nearest is {nearest}"
            )
        whole[name] = {key: whole[name][key] for key in kept}
    places = {name: (holder, key) for name, holder, key in _leaves(whole)}
    for name, value in changes.items():
        names = [name] if name in places else _match(name, places)
        if not names:
            raise _refuse_field(name, list(places))
        for holder, key in map(places.__getitem__, names):
            holder[key] = value
    return check_settings(type(config), whole)


def _match(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a pattern matches; only ``*`` is special in it."""
    compiled = re.compile(".*".join(map(re.escape, pattern.split("*"))))
    return [name for name in names if compiled.fullmatch(name)]


def list_settings(config: BaseModel) -> dict[str, Any]:
    """Return every setting in types of JSON, by the dotted name that `change_settings` takes.

    Args:
        config: Settings; they may contain further settings and dictionaries.
    """
    return {name: holder[key] for name, holder, key in _leaves(config.model_dump(mode="json"))}


def _leaves(whole: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield every setting's dotted name, its mapping and its key, which may contain dots."""
    for key, value in whole.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", whole, key


_MOST_LISTED = 20


def _refuse_field(name: str, known: Sequence[str]) -> InputError:
    (nearest,) = get_close_matches(name, known, n=1, cutoff=0.0)
    names = f" {', '.join(known)}" if len(known) <= _MOST_LISTED else ""
    expected = f"one of the settings{names}" if names else f"one of {len(known)} settings"
    return InputError(expected=expected, found=repr(name), fix=f"the nearest is {nearest}")


def _bad_value(kind: type[BaseModel], error: ValidationError) -> InputError:
    """Explain the first error in one sentence."""
    first = error.errors(include_url=False)[0]
    name, meaning = ".".join(map(str, first["loc"])), ""
    inner: Any = kind
    for part in first["loc"]:
        if isinstance(inner, type) and issubclass(inner, BaseModel) and part in inner.model_fields:
            field = inner.model_fields[str(part)]
            meaning, inner = field.description or meaning, field.annotation
        else:  # a key of a dictionary, whose values have the last of its types
            inner = get_args(inner)[-1] if get_args(inner) else None
    if not name:  # a validator of several fields together
        reason = str(first.get("ctx", {}).get("error", first["msg"]))
        given = first["input"]
        pairs = given.items() if isinstance(given, Mapping) else []
        found = ", ".join(f"{name}={value}" for name, value in pairs) or "the defaults"
        return InputError(expected=reason, found=found, fix="change one of them")
    need = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    fix = f"it is: {meaning or 'see ncscope list NAME'}"
    return InputError(expected=f"{name}: {need}", found=repr(first["input"]), fix=fix)
