"""Tables of the runs with few labels: INFO table 1 with its printed values, gains, weights."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.lab.observations import Observation
from ncscope.lab.papers.info.few_labels import (
    COLOURS,
    SemiSupervised,
    Setting,
    by_setting,
    deviation,
    errors,
    shown,
    summary,
)
from ncscope.lab.papers.info.printed import ERRORS, SETTINGS
from ncscope.report import panels
from ncscope.report.tables import Summary

ADDED = {"FreeMatch + MI": "mutual_information", "FreeMatch + ED": "entropy_difference"}
"""Methods with an information loss, and the field of the loss's weight."""

NOT_RUN = "not run"
_ROWS = ["supervised", *ERRORS]


def table_1(config: SemiSupervised, rows: Sequence[Observation]) -> list[Summary]:
    """Return table 1 for each data set: our errors, then the paper's printed ones.

    All rows of the paper's table are there; those of methods that are not run have only printed
    values. A data set that the paper does not have stands beside the paper's CIFAR-10.

    Args:
        config: Settings of the study.
        rows: Rows of the study.
    """
    settings = by_setting(config)
    return [
        _of_data({setting: by for setting, by in settings.items() if setting.data == data}, rows)
        for data in dict.fromkeys(setting.data for setting in settings)
    ]


def _of_data(
    settings: Mapping[Setting, Mapping[str, Sequence[str]]], rows: Sequence[Observation]
) -> Summary:
    data = next(iter(settings)).data
    other = data if any(data == name for name, _ in SETTINGS) else "cifar10"
    printed = [setting for setting in SETTINGS if setting[0] == other]
    lines = {
        method: [
            *(_cell(rows, by.get(method)) for by in settings.values()),
            *(str(ERRORS[method][each]) if method in ERRORS else "" for each in printed),
        ]
        for method in _ROWS
    }
    caption = (
        "INFO table 1: error on held-out images, in per cent, at the last step, of the averaged "
        "network: mean over the seeds ± standard deviation; then the values that the paper prints"
    )
    heads = [
        *map(str, settings),
        *(f"printed: {name}, {labels} labels" for name, labels in printed),
    ]
    return Summary(caption, heads, lines, title=f"Table 1, {data}")


def _cell(rows: Sequence[Observation], names: Sequence[str] | None) -> str:
    return NOT_RUN if names is None else shown(deviation(errors(rows, names)))


def gains(
    methods: Mapping[str, Sequence[str]], rows: Sequence[Observation], method: str
) -> list[float]:
    """Return FreeMatch's error minus a method's, seed by seed, in points.

    Args:
        methods: Names of the runs of a setting by method.
        rows: Rows of the study.
        method: Method with an information loss.
    """
    plain, other = (errors(rows, methods.get(name, [])) for name in ("FreeMatch", method))
    return [a - b for a, b in zip(plain, other, strict=False)]


def gain_table(config: SemiSupervised, rows: Sequence[Observation]) -> Summary:
    """Return the gain of each information loss by number of labels, and the printed gains.

    Args:
        config: Settings of the study.
        rows: Rows of the study.
    """
    lines = {}
    for setting, methods in by_setting(config).items():
        ours = [shown(summary(gains(methods, rows, method))) for method in ADDED]
        known = tuple(setting) in SETTINGS
        printed = [f"{printed_gain(method, setting):+.2f}" if known else "" for method in ADDED]
        lines[str(setting)] = [*ours, *printed]
    for each in SETTINGS:
        setting = Setting(*each)
        printed = [f"{printed_gain(method, setting):+.2f}" for method in ADDED]
        lines.setdefault(str(setting), [NOT_RUN] * len(ADDED) + printed)
    caption = (
        "INFO 6.3: error of FreeMatch minus error with the information loss, in points: mean over "
        "the seeds ± standard error of the mean; then the difference of the printed means"
    )
    heads = [*ADDED, *(f"printed: {method}" for method in ADDED)]
    return Summary(caption, heads, lines, title="Gain by number of labels")


def printed_gain(method: str, setting: Setting) -> float:
    """Return the difference of the printed mean errors of FreeMatch and of a method, in points."""
    key = setting.data, setting.labels
    return ERRORS["FreeMatch"][key].mean - ERRORS[method][key].mean


def weight_table(config: SemiSupervised, rows: Sequence[Observation]) -> Summary:
    """Return the errors by weight of each information loss; weight 0 is FreeMatch.

    Args:
        config: Settings of the study.
        rows: Rows of the study.
    """
    settings = by_setting(config)
    lines = {"FreeMatch": [_cell(rows, by.get("FreeMatch")) for by in settings.values()]}
    for method in ADDED:
        by_setting_and_weight = [_weights(config, by, method) for by in settings.values()]
        for weight in sorted(set().union(*by_setting_and_weight)):
            cells = [_cell(rows, runs.get(weight)) for runs in by_setting_and_weight]
            lines[f"{method}, weight {weight:g}"] = cells
    caption = (
        "Error in per cent by weight of the information loss, which the paper does not print: "
        "mean over the seeds ± standard deviation"
    )
    return Summary(caption, list(map(str, settings)), lines, title="Weights of the losses")


def _weights(
    config: SemiSupervised, methods: Mapping[str, Sequence[str]], method: str
) -> dict[float, list[str]]:
    """Return the names of a method's runs by the weight of its information loss."""
    field, names = ADDED[method], methods.get(method, [])
    by_weight: dict[float, list[str]] = {}
    for name in names:
        by_weight.setdefault(getattr(config.runs[name], field), []).append(name)
    for name, run in config.swept.items():
        if name.rpartition(", weight ")[0] in names:
            by_weight.setdefault(getattr(run, field), []).append(name)
    return by_weight


def tables(config: SemiSupervised, rows: Sequence[Observation]) -> list[Summary]:
    """Return table 1 by data set, the gains, and, if weights are swept, the errors by weight."""
    found = [*table_1(config, rows), gain_table(config, rows)]
    return [*found, weight_table(config, rows)] if config.weights else found


def gain_figure(config: SemiSupervised, rows: Sequence[Observation]) -> Figure:
    """Draw the gain of each information loss against the number of labels, and the printed gain.

    Args:
        config: Settings of the study.
        rows: Rows of the study.
    """
    settings = by_setting(config)
    sets = list(dict.fromkeys(setting.data for setting in settings))
    others = [] if any(name in sets for name, _ in SETTINGS) else ["cifar10"]
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(1.6 + 3.2 * len(sets + others), 3.0), layout="constrained")
        line = figure.subplots(1, len(sets + others), squeeze=False)[0]
        for axes, data in zip(line, sets + others, strict=True):
            same = {setting: by for setting, by in settings.items() if setting.data == data}
            _gain_panel(axes, same, rows)
            _printed_panel(axes, data)
            axes.axhline(0, color=panels.SOFT, linewidth=0.7)
            axes.set(xscale="log", xlabel="labels", title=f"Gain on {data}, points")
            counts = sorted(
                {setting.labels for setting in same} | {n for d, n in SETTINGS if d == data}
            )
            axes.set_xticks(counts, map(str, counts))
            axes.minorticks_off()
        marks: dict[str, Any] = {}
        for axes in line:
            handles, names = axes.get_legend_handles_labels()
            marks.update(zip(names, handles, strict=True))
        figure.legend(list(marks.values()), list(marks), loc="outside right upper")
    return figure


def _gain_panel(
    axes: Axes, settings: Mapping[Setting, Mapping[str, Sequence[str]]], rows: Sequence[Observation]
) -> None:
    for method in ADDED:
        found = {s.labels: summary(gains(by, rows, method)) for s, by in settings.items()}
        found = {labels: pair for labels, pair in found.items() if math.isfinite(pair[0])}
        if found:
            middles, spreads = zip(*found.values(), strict=True)
            axes.errorbar(list(found), middles, spreads, fmt="o-", color=COLOURS[method],
                          markersize=4, capsize=2.5, label=method)  # fmt: skip


def _printed_panel(axes: Axes, data: str) -> None:
    labels = [count for name, count in SETTINGS if name == data]
    for method in ADDED if labels else ():
        values = [printed_gain(method, Setting(data, count)) for count in labels]
        axes.plot(labels, values, "x", color=COLOURS[method], linestyle=panels.DASHED,
                  markersize=5, label=f"{method}, printed")  # fmt: skip
