"""Tables and figures of ``docs/transfer-zoo.md``, and the evidence that `ncscope transfer` shows.

Command: ``python docs/figures/zoo.py`` reads ``docs/figures/zoo-cells.json.gz``, which ``ncscope
zoo RUNS --cells`` writes, and ``docs/figures/zoo-costs.json``; ``python docs/figures/zoo.py RUNS``
first writes both from the runs of the zoo. Cost: 15 seconds; with runs, ten minutes.
"""

import json
import sys
from pathlib import Path

from ncscope.report.tables import Summary
from ncscope.transfer.records import BASELINES, OWN_SCORES
from ncscope_lab.experiments.transfer.cells import A_FEW, ALL
from ncscope_lab.experiments.transfer.design import list_networks
from ncscope_lab.experiments.transfer.judgement import (
    PUBLISHED,
    ByTarget,
    Verdicts,
    mean_quality,
    quality_interval,
)
from ncscope_lab.experiments.transfer.tables import (
    architectures_table,
    conditions_table,
    cost_table,
    draw_figures,
    ingredients_table,
    judge_by_condition,
    quality_table,
    table_of_tuning,
)
from ncscope_lab.report.drawing import render
from ncscope_lab.transfer_zoo import Zoo

DOCS = Path(__file__).parents[1]
CELLS = DOCS / "figures" / "zoo-cells.json.gz"
COSTS = DOCS / "figures" / "zoo-costs.json"
EVIDENCE = DOCS.parent / "src" / "ncscope" / "transfer" / "evidence.json"


def markdown(summary: Summary) -> str:
    """Return a table with its caption below."""
    head = f"| score | {' | '.join(summary.columns)} |"
    rule = f"|---|{'---|' * len(summary.columns)}"
    lines = [f"| {name} | {' | '.join(cells)} |" for name, cells in summary.lines.items()]
    return "\n".join([head, rule, *lines, "", summary.caption])


def claims_text(verdicts: Verdicts) -> str:
    """Return the claims, each with its verdict and evidence."""
    return "\n".join(
        f"* **{claim.verdict[:1].upper()}{claim.verdict[1:]}.** {claim.text}. "
        f"{claim.evidence[:1].upper()}{claim.evidence[1:]}."
        for claim in verdicts.claims
    )


def sections(zoo: Zoo, costs: dict[str, float]) -> dict[str, str]:
    """Return the generated parts of the page by name."""
    verdicts = zoo.verdicts()
    return {
        "verdicts": claims_text(verdicts),
        "all": markdown(quality_table(verdicts, ALL)),
        "few": markdown(quality_table(verdicts, A_FEW)),
        "tuned": markdown(table_of_tuning(verdicts)),
        "conditions": markdown(conditions_table(verdicts)),
        "architectures": markdown(architectures_table(verdicts, ALL)),
        "architectures-few": markdown(architectures_table(verdicts, A_FEW)),
        "ingredients": markdown(ingredients_table(verdicts)),
        "design-ingredients": markdown(ingredients_table(zoo.verdicts("design"))),
        "cost": markdown(cost_table(verdicts, costs)),
        "design": markdown(quality_table(zoo.verdicts("design"), ALL)),
        "design-few": markdown(quality_table(zoo.verdicts("design"), A_FEW)),
    }


def written(zoo: Zoo, costs: dict[str, float]) -> str:
    """Return the file of all generated parts, each between marks."""
    return "\n".join(
        f"<!-- --8<-- [start:{name}] -->\n{text}\n<!-- --8<-- [end:{name}] -->\n"
        for name, text in sections(zoo, costs).items()
    )


def evidence(zoo: Zoo) -> str:
    """Return the numbers that `ncscope.transfer.advice` reads."""
    wanted = {*PUBLISHED, *OWN_SCORES, *BASELINES}
    found = {
        condition: {key: _numbers(by_target) for key, by_target in scores.items() if key in wanted}
        for condition, scores in judge_by_condition(zoo.verdicts()).items()
    }
    return json.dumps({"source": "transfer/zoo, report half", "weighted_tau": found}, indent=1)


def _numbers(found: ByTarget) -> list[float | None]:
    interval = quality_interval(found)
    mean = round(mean_quality(found), 4)
    if interval is None:
        return [mean, None, None]
    return [mean, round(interval.low, 4), round(interval.high, 4)]


def main(runs: list[str]) -> None:
    """Write the generated files."""
    if runs:
        whole = Zoo.read(*runs)
        whole.save_cells(CELLS)
        COSTS.write_text(json.dumps(whole.costs(), indent=1) + "\n")
    zoo = Zoo.read(CELLS)
    networks = len({cell.network for cell in zoo.cells})
    if networks < len(list_networks(zoo.config)):
        message = f"a whole zoo is needed: {networks} networks found"
        raise SystemExit(message)
    costs = json.loads(COSTS.read_text())
    (DOCS / "figures" / "zoo-tables.md").write_text(written(zoo, costs))
    EVIDENCE.write_text(evidence(zoo) + "\n")
    for drawing in draw_figures(zoo.verdicts()):
        (DOCS / "images" / f"zoo-{drawing.name}.svg").write_bytes(render(drawing, "svg"))


if __name__ == "__main__":
    main(sys.argv[1:])
