"""Write the verdicts on the papers' statements for the docs: ``python docs/figures/evidence.py``.

All statements are checked with seed 0, as by ``ncscope theory --seed 0 --json``. Verdict, grade and
kind of each and the number of its instances go to docs/figures/theory-verdicts.json, which the
evidence page shows; deviations do not, since their last digits depend on the machine. Cost: about a
minute on one core.
"""

import json
from pathlib import Path
from typing import Any

from ncscope_lab.theory.table import check_theory, theory_json

SEED = 0
FILE = Path(__file__).with_name("theory-verdicts.json")
KEPT = ("verdict", "grade", "kind", "instances")


def verdicts() -> dict[str, dict[str, Any]]:
    """Check all statements; return what is kept of each, by id."""
    records = json.loads(theory_json(check_theory(SEED)))
    return {
        record["id"]: {key: record[key] for key in KEPT if record.get(key) is not None}
        for record in records
    }


def main() -> None:
    """Check the statements and write the file."""
    record = {"seed": SEED, "statements": verdicts()}
    FILE.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
