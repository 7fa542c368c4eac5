"""Models, loaders and preprocessing in the user's own code, named as `FILE.py:NAME`.

A name is looked up by importing its file or module, which runs the code in it. Nothing is imported
that the user has not named, but for what that code imports itself.
"""

import inspect
import os
import re
import sys
import traceback
import zlib
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ncscope.errors import InputError, say_error
from ncscope.files import describe_fault

if TYPE_CHECKING:
    from torch import nn

LIBRARIES = ("torchvision", "timm", "hf")
"""Words before the colon that name a library of models and no module of the user."""

_FILE = re.compile(r"(.+\.py):([\w.]+)")
_MODULE = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d][\w.]*)")
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
_MOST_NAMED = 8


def is_own_code(name: str) -> bool:
    """Return whether a text names an object in a file or a module.

    Args:
        name: Text of the command line.

    Example:
        >>> is_own_code("net.py:make_model"), is_own_code("lab.nets:Net"), is_own_code("timm:vit")
        (True, True, False)
    """
    if _FILE.fullmatch(name):
        return True
    return bool(_MODULE.fullmatch(name)) and name.partition(":")[0] not in LIBRARIES


def parse_arguments(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the arguments in pairs ``key=value``; a value is a Python literal, else text.

    Raises:
        InputError: If a pair has no name, a name comes twice, or a value is ``true``, ``false``,
            ``none`` or ``null``: as text, each of them would count as true.

    Example:
        >>> parse_arguments(["width=64", "kind=resnet", "sizes=(3, 4)"])
        {'width': 64, 'kind': 'resnet', 'sizes': (3, 4)}
    """
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (equals and name.isidentifier()) or name in arguments:
            found = f"{name} twice" if name in arguments else repr(pair)
            fix = "for example --model-arg width=64"
            raise InputError(expected="--model-arg KEY=VALUE", found=found, fix=fix)
        if text in ("true", "false", "none", "null"):
            python = {"none": "None", "null": "None"}.get(text, text.capitalize())
            fix = f"write {name}={python}, or {name}='\"{text}\"' for the text"
            raise InputError(expected=f"a value of Python for {name}", found=text, fix=fix)
        try:
            arguments[name] = literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            arguments[name] = text
    return arguments


def check_own_file(name: str) -> None:
    """Check that the file of ``FILE.py:NAME`` is there; a module is not looked up.

    Raises:
        InputError: If there is nothing at the path, or no file.
    """
    in_file = _FILE.fullmatch(name)
    if in_file and (fault := describe_fault(Path(in_file[1]))):
        expected = f"a file of Python, {in_file[1]}"
        raise InputError(expected=expected, found=fault, fix="check the path")


def open_own(name: str) -> Any:
    """Import the file or the module of a name, and return the object.

    Args:
        name: ``FILE.py:NAME``, or ``package.module:NAME`` of a module that is installed or lies in
            the current folder.

    Raises:
        InputError: If there is no such file, module or object, or the code fails; the message names
            file and line.
    """
    in_file = _FILE.fullmatch(name)
    path = Path(in_file[1]) if in_file else None
    before, _, inner = name.rpartition(":")
    check_own_file(name)
    with explain_errors(name):
        module = _import_module(name, before) if path is None else _import_file(path)
        found: Any = module
        for part in inner.split("."):
            if not hasattr(found, part):
                raise _no_object(before, inner, module)
            found = getattr(found, part)
    return found


def make_model(value: Any, arguments: Mapping[str, Any], name: str) -> "nn.Module":
    """Return a model: the object itself, or what a class or function makes of the arguments.

    Args:
        value: Module of torch, class, or function.
        arguments: Keyword arguments, those of ``--model-arg``.
        name: Name of the object, for messages.

    Raises:
        InputError: If the arguments do not fit the signature, the code fails, or the result is no
            module of torch.
    """
    # Imported here, as below: whether a name is code of the user is asked before torch is imported.
    from torch import nn

    model = value
    if isinstance(value, nn.Module):
        if arguments:
            found, fix = f"{name}, which is a model already", "leave --model-arg out"
            raise InputError(expected="a class or function for --model-arg", found=found, fix=fix)
    elif callable(value):
        inner = name.rpartition(":")[2]
        try:
            signature = inspect.signature(value)
            signature.bind(**arguments)
        except TypeError as error:
            fix = "pass --model-arg KEY=VALUE for the arguments of this signature, and no others"
            expected = f"arguments of {inner}{signature}"
            raise InputError(expected=expected, found=str(error), fix=fix) from error
        except ValueError:  # a function without a signature
            pass
        with explain_errors(name):
            model = value(**arguments)
    if not isinstance(model, nn.Module):
        found = f"{type(model).__name__}"
        fix = "name a torch.nn.Module, its class, or a function that returns one"
        raise InputError(expected=f"a model of torch from {name}", found=found, fix=fix)
    return model


@contextmanager
def explain_errors(
    *names: str, fix: str = "correct it there, and call the function in Python to see more"
) -> Iterator[None]:
    """Raise errors of the user's code as InputError, with file and line; other errors unchanged.

    The folder of the code comes first in the search for modules, as in ``python FILE.py``, and last
    afterwards. The code sees a command line without arguments, because those are for ncscope.

    Args:
        names: Names of the code that runs, as for `open_own`; without a name, nothing is done.
        fix: Remedy for the message.
    """
    if not names:
        yield
        return
    files = [_FILE.fullmatch(name) for name in names]
    folders = [os.fspath(Path(file[1]).resolve().parent) if file else "" for file in files]
    folders = [folder or os.fspath(Path.cwd()) for folder in folders]
    words, before = sys.argv, list(sys.path)
    sys.argv, sys.path[:0] = [names[0].rpartition(":")[0]], folders
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        place = _find_place(error, [_find_root(name) for name in names])
        if place is None:
            raise
        file, line, message = place
        if "attempted relative import" in message and (path := _FILE.fullmatch(names[0])):
            module = ".".join(Path(path[1]).with_suffix("").parts)
            fix = f"name the module in its package, {module}:{path[2]}, from the folder above"
        raise InputError(
            expected=f"code that runs in {names[0].rpartition(':')[0]}",
            found=f"{message} ({file}, line {line})",
            fix=fix,
        ) from error
    finally:
        sys.argv = words
        added = [path for path in sys.path if path not in before]
        sys.path[:] = list(dict.fromkeys([*before, *added]))


def _find_root(name: str) -> Path:
    """Return the folder of the user's code; of an installed module in one file, the file."""
    if found := _FILE.fullmatch(name):
        return Path(found[1]).resolve().parent
    module = sys.modules.get(name.partition(":")[0].partition(".")[0])
    file = getattr(module, "__file__", None)
    if file is None:
        return Path.cwd()
    path = Path(file).resolve()
    if path.is_relative_to(Path.cwd().resolve()) and "site-packages" not in path.parts:
        return Path.cwd().resolve()
    return path.parent if path.name == "__init__.py" else path


def _import_module(name: str, module: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # The module itself, or a package above: not what its code imports.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        known = ", ".join(f"{library}:" for library in LIBRARIES)
        raise InputError(
            expected=f"a model of {known} or the catalogue, or a module {module} in this folder",
            found=f"{name!r}, and no module {error.name}",
            fix="for example timm:resnet18, hf:FOLDER, net.py:make_model or package.module:Class",
        ) from error


def _import_file(path: Path) -> ModuleType:
    # A name of its own: a file called copy.py must not take the place of the standard library's.
    # With the time in the name, a notebook sees what was changed in the file.
    version = f"{path.resolve()} {path.stat().st_mtime_ns}"
    name = f"{path.stem}_{zlib.crc32(os.fsencode(version)):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look the module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _no_object(place: str, name: str, module: ModuleType) -> InputError:
    """Return the error for a name that a module lacks, which offers those that it defines."""
    from torch import nn

    own = [
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and (getattr(value, "__module__", "") == module.__name__ or isinstance(value, nn.Module))
    ]
    near = get_close_matches(name, own, n=_MOST_NAMED, cutoff=0.0)
    fix = f"name one of {', '.join(near)}" if near else "check the name"
    return InputError(expected=f"{name} in {place}", found="no such name", fix=fix)


def _find_place(error: BaseException, roots: Sequence[Path]) -> tuple[str, int, str] | None:
    """Return file, line and message of an error in the user's code; None if it arose elsewhere.

    The last frame of the user's or of ncscope's code decides whose error it is: libraries that the
    user's code called are between this frame and the error.
    """
    message = f"{type(error).__name__}: {say_error(error)}".rstrip(": ")
    if isinstance(error, SyntaxError) and error.filename and _is_below(error.filename, roots):
        return Path(error.filename).name, error.lineno or 0, f"{type(error).__name__}: {error.msg}"
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if _is_below(file, [_PACKAGE]):
            break
        if _is_below(file, roots):
            return Path(file).name, line, message
    # A process that reads data ahead sends the text of its traceback alone.
    places = [found for found in _PLACE.findall(str(error)) if _is_below(found[0], roots)]
    if places:
        file, line = places[-1][0], int(places[-1][1])
        return Path(file).name, line, str(error).strip().rpartition("\n")[2][:200]
    return None


_PACKAGE = Path(__file__).resolve().parents[1]


def _is_below(file: str, roots: Sequence[Path]) -> bool:
    """Return whether a file is one of some, or in one of their folders and not installed there."""
    path = Path(file).resolve()
    return any(
        path == root
        or (path.is_relative_to(root) and "site-packages" not in path.relative_to(root).parts)
        for root in roots
    )
