"""Running a command line: error messages and exit codes."""

import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import typer

from ncscope.cli.app import Interruption, app
from ncscope.errors import (
    LABORATORY,
    TARGETS,
    InputError,
    how_to_install,
    library_error,
    printable,
    shorten_words,
)

# Each module adds its command to the app; the help lists the commands in this order.
for _module in ("measure", "report", "transfer", "doctor"):
    import_module(f"ncscope.cli.{_module}")
# Commands of other packages, the laboratory among them.
_commands = entry_points(group="ncscope.commands")
for _entry in _commands:
    _entry.load()


def _explain_laboratory(context: typer.Context) -> None:
    """Say how to get the laboratory, which is not installed."""
    raise InputError(
        expected=f"the laboratory for ncscope {context.info_name}",
        found="that it is not installed",
        fix=how_to_install(LABORATORY),
    )


_ANY_WORDS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
if "run" not in _commands.names:
    for _name in ("demo", "run", "list", "theory", "sweep", "zoo"):
        app.command(_name, hidden=True, context_settings=_ANY_WORDS)(_explain_laboratory)

# Some versions of Typer contain a copy of click, others depend on click.
_UsageError: Any = typer.BadParameter.__bases__[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, and exit.

    The exit code is 0 on success, 2 on bad input or usage or a missing library, 130 after an
    interruption and 1 on an error of the program. The last three come with one line on standard
    error. It is 1 without such a line if the command finds that a statement fails.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    sys.exit(_run([word for word in words if word != "--debug"], debug))


_OTHER_WORDS = {"--out": "--save", "--output": "--save", "--metrics": "--groups"}
"""Options of other commands, and those that have their sense where they do not exist."""


def _run(words: list[str], debug: bool) -> int:
    try:
        code = app(args=words or ["--help"], prog_name="ncscope", standalone_mode=False)
    except _UsageError as error:
        message = error.format_message().rstrip(".") or "no command given"
        message = message.replace(": Value error, ", ": ")  # Typer's words for a wrong choice
        command = "ncscope" if error.ctx is None else error.ctx.command_path
        option = getattr(error, "option_name", "")
        if (command, option) in _options_of_models():  # the nearest option would be another thing
            message = (
                f"No such option: {option}; measure a model by ncscope measure-model MODEL DATA"
            )
        elif option in _OTHER_WORDS and error.ctx is not None:
            meant, known = _OTHER_WORDS[option], error.ctx.command.params
            if any(meant in each.opts for each in known):  # the nearest in letters is another
                message = f"No such option: {option}; {meant} is it here"
        return _fail(f"{message}. See {command} --help.", 2, debug)
    except (typer.Abort, Interruption, KeyboardInterrupt) as error:
        return _fail(f"interrupted; {error}".rstrip("; "), 130, debug)
    except InputError as error:
        return _fail(str(error), 2, debug)
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in TARGETS:
            return _fail(_describe_crash(error), 1, debug)
        # A command of the laboratory needs more than one library; its distribution has them all.
        target = TARGETS[library]
        frames = traceback.walk_tb(error.__traceback__)
        modules = [frame.f_globals.get("__name__", "") for frame, _ in frames]
        if target == ".[models]" and any(name.startswith("ncscope_lab.") for name in modules):
            target = LABORATORY
        return _fail(str(library_error(library, target)), 2, debug)
    except (MemoryError, ImportError, OSError) as error:
        # A library that does not fit into memory raises ImportError with the words of the system.
        no_memory = r"failed to map segment|[Cc]annot allocate memory"
        if isinstance(error, MemoryError) or re.search(no_memory, str(error)):
            words_of_error = f" ({error})" if str(error) else ""
            fix = "free memory, or raise its limit (ulimit -v, the limit of the batch job)"
            found = f"found too little{words_of_error}"
            return _fail(f"expected memory to load and to measure, {found}; {fix}", 2, debug)
        if not isinstance(error, OSError):
            return _fail(_describe_crash(error), 1, debug)
        reason = error.strerror
        if error.filename is None or reason is None:
            found = f"found {error}; check the disk and the folder"
            message = f"expected to read and write files, {found}"
            return _fail(message, 2, debug)
        file = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
        message = f"expected to read or write {file}, found {reason}; correct that and try again"
        return _fail(message, 2, debug)
    except Exception as error:  # any other error: one line instead of a traceback
        return _fail(_describe_crash(error), 1, debug)
    return code if isinstance(code, int) else 0


def _describe_crash(error: Exception) -> str:
    """Describe an error that is none of ours, with the line of the user's own code, if any."""
    packages = [sys.modules.get(name) for name in ("ncscope", "ncscope_lab")]
    folders = [Path(each.__file__).parent for each in packages if each and each.__file__]
    folders += [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "scripts")]
    lines = [
        f"{path.name}, line {frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if (path := Path(frame.filename)).exists() and not {*folders} & {*path.parents}
    ]
    at = f" ({lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {error}{at}; run again with --debug for the traceback"


def _options_of_models() -> set[tuple[str, str]]:
    """List pairs of a command and an option of models that has no place there."""
    commands: Any = typer.main.get_command(app)
    of_models = commands.commands["measure-model"].params
    names = {"--model", "--data", *(name for option in of_models for name in option.opts)}
    wrong = {("ncscope measure-model", "--model"), ("ncscope measure-model", "--data")}
    return wrong | {("ncscope measure", name) for name in names}


def _fail(message: str, code: int, debug: bool) -> int:
    """Print the message on standard error, and return the exit code."""
    if debug:
        print(printable(traceback.format_exc(), keep="\n"), end="", file=sys.stderr)
    print("error: " + printable(shorten_words(message)), file=sys.stderr)
    return code
