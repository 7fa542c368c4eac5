"""Verdicts and figures of experiments for the docs: ``python docs/figures/verdicts.py RUN...``.

Each RUN is the folder of a run that has ended, as ``ncscope run NAME --out RUN`` writes it. Its
claims are judged anew from its measurements and go, with the captions of its figures, to
docs/figures/verdicts-SCALE.json, from which the pages are written; the figures go to
docs/images/runs. A run of `SERVES` is judged for both of its experiments. Cost: seconds a run.
Give ``--hardware`` with a new run that was not all on CPU cores, such as "the first 1,000 steps on
an NVIDIA H100": the pages say it. Without the option the words that were given before stay.
"""

import argparse
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
from PIL import Image

from ncscope_lab.catalogue import find_experiment
from ncscope_lab.execution import ExperimentRun, load_run
from ncscope_lab.report.drawing import Drawing

FOLDER = Path(__file__).parent
IMAGES = FOLDER.parent / "images" / "runs"
DPI = 130
COLOURS = 256  # with fewer, lines change their colour
SERVES = {"mse/decomposition": "mse/collapse", "mse/robustness": "mse/loss-comparison"}
"""Experiments, each with another on the same networks that needs no more than it measures."""


def main() -> None:
    """Judge the runs and write verdicts and figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run")
    parser.add_argument("--hardware", help="hardware of the runs in words; empty for CPU cores")
    options = parser.parse_args()
    for folder in options.runs:
        run = load_run(folder)
        if not run.ended:
            parser.error(f"{folder} has not ended: run the same command with --resume")
        if run.config != run.experiment.configure(run.scale):
            parser.error(f"{folder} has settings of its own: run the experiment without --set")
        write(run, options.hardware)
        if (name := SERVES.get(run.experiment.id)) is not None:
            other = find_experiment(name)
            config = other.configure(run.scale)
            claims = other.judge(config, run.rows)
            write(replace(run, experiment=other, config=config, claims=claims), options.hardware)


def write(run: ExperimentRun, hardware: str | None = None) -> None:
    """Write the verdicts and figures of a run in place of those of its experiment before.

    Args:
        run: The run.
        hardware: Hardware in words, if not CPU cores alone; None to keep the words of before.
    """
    file = FOLDER / f"verdicts-{run.scale}.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    name = run.experiment.id
    before = record["experiments"].get(name, {"claims": []})
    captions = {}
    for drawing in run.drawings():
        captions[drawing.name] = drawing.caption
        picture = IMAGES / f"{name.replace('/', '-')}-{drawing.name}.png"
        picture.parent.mkdir(exist_ok=True)
        picture.write_bytes(render_small(drawing))
    claims = [claim.record() for claim in run.claims]
    record["experiments"][name] = {
        "failure": "",
        "outdated": False,
        "hardware": before.get("hardware", "") if hardware is None else hardware,
        "figures": captions,
        "claims": claims,
    }
    file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print_changes(before["claims"], claims)


def render_small(drawing: Drawing) -> bytes:
    """Render a figure to the bytes of a PNG with few colours."""
    full, small = io.BytesIO(), io.BytesIO()
    with mpl.rc_context({"savefig.dpi": DPI}):
        drawing.figure.savefig(full, format="png", metadata={"Software": None})
    Image.open(full).convert("RGB").quantize(COLOURS).save(small, "png", optimize=True)
    return small.getvalue()


def print_changes(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> None:
    """Print the verdict on each claim, with that before."""
    old = {claim["claim"]: claim["verdict"] for claim in before}
    for claim in now:
        print(f"{claim['verdict']} (before: {old.pop(claim['claim'], 'new')}): {claim['claim']}")
    for text, verdict in old.items():
        print(f"gone (before: {verdict}): {text}")


if __name__ == "__main__":
    main()
