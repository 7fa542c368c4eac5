"""Settings given by name, checked against what a study has."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ncscope.errors import InputError

Config = TypeVar("Config", bound=BaseModel)


def settings(config: type[Config], given: Mapping[str, Any]) -> Config:
    """A study's settings, the defaults where nothing is given.

    Args:
        config: The study's settings.
        given: Values by field.

    Raises:
        InputError: If a field is unknown (it names the nearest) or a value out of bounds.
    """
    for name in given:
        if name not in config.model_fields:
            (nearest,) = get_close_matches(name, list(config.model_fields), n=1, cutoff=0.0)
            raise InputError(
                expected=f"one of the settings {', '.join(config.model_fields)}",
                found=repr(name),
                fix=f"the nearest is {nearest}",
            )
    try:
        return config.model_validate(dict(given))
    except ValidationError as error:
        raise _explained(config, error) from error


def _explained(config: type[BaseModel], error: ValidationError) -> InputError:
    """The first thing wrong, in one sentence."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if not name:  # several fields that do not fit each other
        reason = str(first.get("ctx", {}).get("error", first["msg"]))
        return InputError(expected=reason, found=_said(first["input"]), fix="change one of them")
    meaning = config.model_fields[name].description or "see --help"
    need = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    fix = f"it is: {meaning}"
    return InputError(expected=f"{name}: {need}", found=repr(first["input"]), fix=fix)


def _said(given: Any) -> str:
    pairs = given.items() if isinstance(given, Mapping) else []
    return ", ".join(f"{name}={value}" for name, value in pairs) or "the defaults"
