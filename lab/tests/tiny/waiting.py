"""Halving that takes its time and can fail, in a file that other processes know by its path."""

import time
from collections.abc import Iterator
from dataclasses import replace

from lab.tests.tiny import halving
from pydantic import Field

from ncscope_lab.experiment import Part
from ncscope_lab.observations import Event
from ncscope_lab.runs.resources import Resources


class Waiting(halving.Halving):
    """Its settings."""

    wait: float = Field(0.0, ge=0, description="Seconds before each step.")
    fails: bool = Field(False, description="Whether the first part fails at its end.")


def parts(config: Waiting) -> list[Part]:
    def waits(part: Part) -> Part:
        def run(resources: Resources) -> Iterator[Event]:
            for row in part.run(resources):
                time.sleep(config.wait)
                yield row
            if config.fails:
                raise ZeroDivisionError("by\nzero")

        return replace(part, run=run)

    return [waits(part) for part in halving.parts(config)]


EXPERIMENT = replace(
    halving.PLAIN, parts=parts, scales={"paper": Waiting(steps=5), "small": Waiting()}
)
