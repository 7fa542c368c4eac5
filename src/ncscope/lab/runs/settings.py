"""Settings given by name, checked against the settings class of a study."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ncscope.errors import InputError

Config = TypeVar("Config", bound=BaseModel)


def settings(config: type[Config], given: Mapping[str, Any]) -> Config:
    """Return a study's settings, with the default for every field that is not given.

    Args:
        config: Class of the study's settings.
        given: Values by field.

    Raises:
        InputError: If a field is unknown (the message names the nearest field), or a value is
            out of bounds.
    """
    for name in given:
        if name not in config.model_fields:
            raise _unknown(name, list(config.model_fields))
    try:
        return config.model_validate(dict(given))
    except ValidationError as error:
        raise _explained(config, error) from error


def overridden(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Replace some fields of settings.

    Args:
        config: Settings to start from.
        overrides: Values by dotted name, for example ``runs.digits.optimisation.epochs``: each
            part of a name is a field of settings or a key of a dictionary.

    Raises:
        InputError: As for `settings`.
    """
    whole = config.model_dump()
    places = {name: (holder, key) for name, holder, key in _leaves(whole)}
    for name, value in overrides.items():
        if name not in places:
            raise _unknown(name, list(places))
        holder, key = places[name]
        holder[key] = value
    return settings(type(config), whole)


def by_dotted_name(config: BaseModel) -> dict[str, Any]:
    """Return every setting in types of JSON, by the dotted name that `overridden` takes.

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


def _unknown(name: str, known: Sequence[str]) -> InputError:
    (nearest,) = get_close_matches(name, known, n=1, cutoff=0.0)
    listed = (
        f"the settings {', '.join(known)}"
        if len(known) <= _MOST_LISTED
        else f"{len(known)} settings"
    )
    found, fix = repr(name), f"the nearest is {nearest}"
    return InputError(expected=f"one of {listed}", found=found, fix=fix)


_MOST_LISTED = 20


def _explained(config: type[BaseModel], error: ValidationError) -> InputError:
    """Explain the first error in one sentence."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if not name:  # a validator of several fields together
        reason = str(first.get("ctx", {}).get("error", first["msg"]))
        return InputError(expected=reason, found=_said(first["input"]), fix="change one of them")
    meaning = config.model_fields[name].description or "see --help"
    need = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    fix = f"it is: {meaning}"
    return InputError(expected=f"{name}: {need}", found=repr(first["input"]), fix=fix)


def _said(given: Any) -> str:
    pairs = given.items() if isinstance(given, Mapping) else []
    return ", ".join(f"{name}={value}" for name, value in pairs) or "the defaults"
