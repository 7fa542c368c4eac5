"""The picture of the README: NC1 to NC4 of the demo in a row, drawn by ``History.plot``.

Cost: seconds, after ``ncscope demo``, under two minutes on two cores.
Command: ``.venv/bin/ncscope demo && .venv/bin/python docs/figures/demo.py``; writes
docs/images/demo.png.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from PIL import Image

from ncscope import History
from ncscope.report.panels import STYLE

PICTURE = Path(__file__).parents[1] / "images" / "demo.png"


def main() -> None:
    """Read the demo's history and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default="ncscope-demo", help="of the demo")
    parser.add_argument("--out", type=Path, default=PICTURE, help="where to write the picture")
    arguments = parser.parse_args()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 2.5), layout="constrained")
        History.load(arguments.folder).plot("nc", axes=figure.subplots(1, 4))
        figure.savefig(arguments.out, dpi=160)
    # 32 colours are enough for lines and text, in a third of the bytes.
    Image.open(arguments.out).convert("RGB").quantize(32).save(arguments.out, optimize=True)


if __name__ == "__main__":
    main()
