"""Measurement of features in several files, for the command `ncscope measure`."""

import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncscope.cli.terminal import row_bar
from ncscope.errors import InputError

if TYPE_CHECKING:
    from ncscope.api.result import Report

_FOLDER = "ncscope-shards"
"""Beginning of the name of the folder for the states of finished shards, beside the output."""


def _folder_of(files: Sequence[str]) -> str:
    """Return a name of the folder for states that commands on other files do not share."""
    paths = "\n".join(str(Path(file).absolute()) for file in files)
    return f"{_FOLDER}-{zlib.crc32(paths.encode(errors='surrogateescape')):08x}"


def are_shards(patterns: Sequence[str]) -> bool:
    """Return whether files are shards: several, a pattern, an address, or Parquet."""
    from ncscope.api.shard_files import is_parquet, is_plain

    return len(patterns) > 1 or not is_plain(patterns[0]) or is_parquet(patterns[0])


def measured_shards(
    patterns: Sequence[str],
    classifier: dict[str, Any],
    options: dict[str, Any],
    *,
    cluster: str | None,
    work: Path | None,
    beside: Path | None,
    at_end: ExitStack,
) -> "Report":
    """Measure the files that patterns name, with a progress bar.

    Args:
        patterns: Paths, addresses, and patterns of both.
        classifier: Weight and bias; without a weight, those in the first file are taken, if any.
        options: Options of the command; chance level and standard errors are refused.
        cluster: ``"local"`` or the address of a Ray cluster.
        work: Folder for the states of finished shards.
        beside: File that the report is saved as.
        at_end: Context that is left once the report is written; the states of finished shards are
            then removed, unless the user has named their folder.

    Raises:
        InputError: If the files or the options do not fit.
        KeyboardInterrupt: If the user interrupts; the message says how to continue.
    """
    from ncscope.api.measure_files import measure_files, remove_states
    from ncscope.api.shard_files import expand_patterns, load_shard_classifier, shard_name
    from ncscope.measurement.provenance import provenance

    for name in ("baseline", "uncertainty"):
        if options.pop(name):
            fix = "leave it out, or measure one file that fits into memory"
            found = "features in shards"
            raise InputError(expected=f"all samples at once for --{name}", found=found, fix=fix)
    files = expand_patterns(patterns)
    if "weight" not in classifier:
        classifier = load_shard_classifier(files[0]) | classifier
    folder = work
    if cluster is not None and work is None:
        folder = (Path() if beside is None else beside.parent) / _folder_of(files)
        at_end.callback(remove_states, folder)
    progress = ("first pass", 0, len(files))

    def on_shard(*now: Any) -> None:
        nonlocal progress
        progress = now
        show(*now)

    try:
        with row_bar() as show:
            report = measure_files(
                files,
                cluster=cluster,
                work=folder,
                on_shard=on_shard,
                **classifier,
                **options,
            )
    except KeyboardInterrupt:
        at_end.pop_all()  # the states stay
        msg = "pass --work FOLDER to keep the files that are done"
        if folder is not None:
            part, done, total = progress
            msg = f"the same command goes on after {done} of {total} files of the {part}"
        raise KeyboardInterrupt(msg) from None
    named = shard_name(files[0])
    if len(files) > 1:
        named = f"{len(files)} files, {named} to {shard_name(files[-1])}"
    report.provenance = provenance(data=named, caller="ncscope measure")
    return report
