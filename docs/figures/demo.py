"""The picture of the README: the demo, run and drawn.

Cost: that of ``ncscope demo``, under two minutes on two cores.
Command: ``.venv/bin/python docs/figures/demo.py``; writes docs/images/demo.png, prints the table
and the claims.
"""

import argparse
from pathlib import Path

from rich.console import Console

from ncscope.lab.experiments.pfc import demo
from ncscope.lab.observations import Heartbeat, Results
from ncscope.lab.report.rows import claims_table
from ncscope.report.figures import plot_run
from ncscope.report.tables import build_run_table

PICTURE = Path(__file__).parents[1] / "images" / "demo.png"


def main() -> None:
    """Run the demo, write the picture, print what it shows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=PICTURE, help="where to write the picture")
    parser.add_argument("--epochs", type=int, help="another number of epochs than the demo's")
    arguments = parser.parse_args()
    given = {} if arguments.epochs is None else {"epochs": arguments.epochs}
    config, results = demo.DemoConfig(**given), Results()
    for event in demo.train_demo(config):
        if not isinstance(event, Heartbeat):
            results.add(event, demo.PART)
    plot_run(results.measurements).savefig(arguments.out, dpi=144)
    console = Console()
    console.print(build_run_table(results.measurements))
    console.print(claims_table(demo.EXPERIMENT.judge(config, results)))
    console.print(f"Picture: {arguments.out}")


if __name__ == "__main__":
    main()
