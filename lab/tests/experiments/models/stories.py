"""Real, quick computations of models, of which every claim holds, with values to change."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from lab.tests.experiments.story import Story
from lab.tests.observed import changed, experiment_results, results_of

from ncscope_lab.experiment import Experiment
from ncscope_lab.experiments.models import central_path, extended, geodesic, perturbed
from ncscope_lab.experiments.models import ufm as one_level
from ncscope_lab.experiments.pfc import mufm
from ncscope_lab.experiments.xufm import landscape, ufm
from ncscope_lab.experiments.xufm.ufm import DECAYS, NO_DECAYS, RELU, SWEEP
from ncscope_lab.observations import Results
from ncscope_lab.surrogates.extended import ExtendedUFM


def tell_real(compute: Callable[[], Results]) -> Callable[..., Results]:
    """Return the `tell` of a story that begins with a real computation."""
    real = cache(compute)

    def tell(
        part: str = "", layer: str = "", values: Mapping[str, Any] = {}, last: bool = False
    ) -> Results:
        rows = list(real())
        at = [
            i for i, row in enumerate(rows) if part in ("", row.part) and layer in ("", row.layer)
        ]
        for i in at[-1:] if last else at:
            given = {
                key: new(rows[i][key]) if callable(new) else new for key, new in values.items()
            }
            rows[i] = changed(rows[i], **given)
        return Results(rows, real().measurements)

    return tell


def turn(
    part: str, key: str, value: Any, *lost: str, layer: str = "", last: bool = False
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """A change of one value of a part and layer, everywhere or in the last row, and its claims."""
    return {"part": part, "layer": layer, "values": {key: value}, "last": last}, lost


def run(experiment: Experiment[Any], settings: Any) -> Callable[..., Results]:
    return tell_real(lambda: experiment_results(experiment, settings))


PRINTED_LAW = (
    "The paper's algorithm, gradient steps that are each renormalised, follows the printed law in "
    "the end, with the smallest steps"
)
FOURTH_ROOT = (
    "Renormalised flow, the limit of the paper's algorithm: singular values grow like t^(1/4), as "
    "in the printed law"
)
FLOW = central_path.CentralPath(dim=4, per_class=2, points=9, descent_steps=(16, 64))
CENTRAL_PATH = Story(
    experiment=central_path.EXPERIMENT,
    settings=FLOW,
    tell=run(central_path.EXPERIMENT, FLOW),
    count=17,
    never=[PRINTED_LAW, FOURTH_ROOT],
    turns=[
        turn(part, key, value, lost, last=True)
        for lost, part, key, value in [
            ("Projected flow: simulated", "projected", "law_deviation", 2e-6),
            ("Renormalised flow: simulated", "renormalised", "law_deviation", 2e-6),
            ("Projected flow: singular values gr", "projected", "omega_2", lambda x: 1.1 * x),
            ("Renormalised flow: the ratio", "renormalised", "ratio", 1.02),
            ("Projected flow: singular vectors", "projected", "turned", 1e-5),
            ("Projected flow: singular vectors", "projected", "within_moved", 1e-5),
            ("Projected flow: features divided", "projected", "limit_distance", 5.0),
            ("Renormalised flow: NC1 to NC4", "renormalised", "nc2_etf", 0.1),
            ("As the step", "descent in 64 steps", "renormalised_deviation", lambda x: 2 * x),
            ("As the step size", "descent in 64 steps", "projected_deviation", 0.01),
            ("Unrestricted, on", "unrestricted, on the path", "mse_off_path", 1.0),
            ("Unrestricted, off", "unrestricted, off the path", "mse_off_path", 1.0),
        ]
    ],
)

TWO_LEVELS = extended.ExtendedConfig(
    **{"num_classes": 3, "dim": 12, "per_class": 3, "weight_decays": (0.05, 0.05), "seed": 1},
    **{"feature_decay": 0.02, "rate": 0.5, "steps": 3000, "every": 500},
)
EXTENDED = Story(
    experiment=extended.EXPERIMENT,
    settings=TWO_LEVELS,
    tell=run(extended.EXPERIMENT, TWO_LEVELS),
    count=13,
    turns=[
        turn("linear", "objective", 0.9, "", layer="H2", last=True),
        turn("linear", "nc1", 0.5, "", layer="H1", last=True),
        turn("relu", "nc2_of", 0.5, "", layer="H2", last=True),
        turn("relu", "nc3_alignment", 0.5, "", layer="H2", last=True),
        turn("relu", "nuclear_cost", 1e-5, "", layer="H2", last=True),
        turn("relu", "nc2_of", 1e-9, "", layer="H1", last=True),
    ],
)

SMALL: Mapping[str, Any] = {
    **{"num_classes": 3, "dim": 5, "per_class": 4, "weight_decay": 0.05, "feature_decay": 0.05},
    **{"rate": 1.0, "steps": 300, "every": 150},
}
ONE_LEVEL = one_level.UFMConfig(**SMALL)
UFM = Story(
    experiment=one_level.EXPERIMENT,
    settings=ONE_LEVEL,
    tell=run(one_level.EXPERIMENT, ONE_LEVEL),
    count=5,
    turns=[
        turn(part, key, lambda x: x + 0.01, lost)
        for part, key, lost in [
            ("fast solver", "objective", "The fast solver ends"),
            ("descent", "objective", "Gradient descent arrives"),
            ("descent", "nc1", "NC1: features"),
            ("descent", "nc2_of", "NC2: class means become"),
            ("descent", "nc3_alignment", "NC3: the classifier"),
        ]
    ],
)

LINE = geodesic.GeodesicConfig(num_classes=4, dim=6, per_class=10, points=21)
GEODESIC = Story(
    experiment=geodesic.EXPERIMENT,
    settings=LINE,
    tell=run(geodesic.EXPERIMENT, LINE),
    count=3,
    turns=[
        (
            {"values": {"alignment": -1.0, "pfc1_falls_from": 0.0, "pfc2_falls_from": 1.0}},
            ["", ""],
        ),
        turn("", "pfc3", 0.0, "PFC3 does not fall", last=True),
    ],
)

FITS = perturbed.PerturbedConfig(num_classes=3, dim=4, per_class=(100, 400, 1600), seeds=12)
PERTURBED = Story(
    experiment=perturbed.EXPERIMENT,
    settings=FITS,
    tell=run(perturbed.EXPERIMENT, FITS),
    count=2,
    turns=[
        turn("", "predicted", lambda x: 0.97 * x, ""),
        turn("", "predicted", lambda x: 1.03 * x, ""),
        turn("", "deviation", 0.1, ""),
    ],
)

MODEL = ExtendedUFM(2, 2, 2, weight_decays=(0.02, 0.02), feature_decay=0.02)
SADDLES = "With positive decays the landscape of (23) includes non-strict saddles"
CRITICAL = landscape.CRITICAL
LANDSCAPE = Story(
    experiment=replace(
        extended.EXPERIMENT,
        id="landscape",
        claims=landscape.list_claims(),
        parts=lambda settings: landscape.list_parts(MODEL, rate=0.5, steps=1500, seeds=range(2)),
    ),
    settings=TWO_LEVELS,
    tell=tell_real(
        lambda: results_of(*landscape.list_parts(MODEL, rate=0.5, steps=1500, seeds=range(2)))
    ),
    count=5,
    never=[SADDLES],
    slow=True,
    turns=[
        turn(CRITICAL, "curvature_without_decays", 0.1, "Without decays zero"),
        turn(CRITICAL, "kind", "strict saddle", "With positive decays zero"),
        turn(landscape.FAINT, "objective", 0.3, "Descent on (23) needs"),
        turn(landscape.FACTORS, "reached", 5.0, "The cheapest factors"),
        turn(landscape.FACTORS, "off_gram", 0.1, "The cheapest factors"),
    ],
)


def small_patches() -> list[tuple[Any, str, Any]]:
    return [(ufm, "SIZES", ((3, 12, 8, 0.05, 0.02),)), (ufm, "RATE", 1.0)]


def small_settings() -> ufm.XUFMConfig:
    """Settings of a short run, with bias decays on both sides of the threshold."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in small_patches():
            patch.setattr(module, name, value)
        decays = [x * ufm.threshold() for x in (0.05, 0.1, 0.5, 0.99, 1.01, 2, 5, 10)]
    return ufm.XUFMConfig(
        settings="first", first_steps=1000, every=1000, starts=6, bias_decays=tuple(decays)
    )


XUFM_SETTINGS = small_settings()
XUFM = Story(
    experiment=ufm.EXPERIMENT,
    settings=XUFM_SETTINGS,
    tell=run(ufm.EXPERIMENT, XUFM_SETTINGS),
    count=4 + 5 + 3 + 3,
    patches=small_patches(),
    slow=True,
    turns=[
        turn(*each)
        for each in [
            ("K = 3, no bias", "objective", 0.9, "K = 3, no bias: Gradient descent arrives"),
            ("K = 3, free bias", "mean_share", 0.1, "K = 3, free bias: The global mean"),
            (SWEEP, "nc2_etf", 1e-3, "Regularised bias: centred means"),
            (SWEEP, "nc3_alignment", 1e-3, "Regularised bias: centred means"),
            (SWEEP, "bias_decay", 0.01, "Regularised bias: the minimiser is a simplex"),
            (SWEEP, "objective", 0.9, "Regularised bias: the solver's objective"),
            (SWEEP, "stated_mean_share", 0.9, "Regularised bias: the solver's objective"),
            (DECAYS, "nc1", 0.5, "With decays"),
            (DECAYS, "objective", 0.9, "With decays"),
            (NO_DECAYS, "nc1", 1e-6, "Without decays"),
            (NO_DECAYS, "objective", 0.1, "Without decays"),
            (RELU, "nc1", 1e-6, "With a ReLU"),
            (RELU, "objective", 0.49, "With a ReLU"),
        ]
    ],
)

MUFM_SETTINGS = mufm.PFCConfig(
    seeds=5, steps=2500, every=2500, transports=(1e-6, 0.03), small_transports=(1e-9, 1e-6)
)


def arrived() -> Results:
    """A short run on little data, whose descent on MUFM is set to arrive, as the real one does."""
    results = results_of(*mufm.EXPERIMENT.parts(MUFM_SETTINGS))
    least = {
        row.part.removeprefix("minima, "): float(row["objective"])
        for row in results
        if row.get("model") == "MUFM"
    }
    return Results(
        row.with_values({"objective": 1.001 * least[row.part.split(", ", 1)[1]]})
        if row.part.startswith("MUFM, ") and row.step
        else row
        for row in results
    )


MUFM = Story(
    experiment=mufm.EXPERIMENT,
    settings=MUFM_SETTINGS,
    tell=tell_real(arrived),
    count=19,
    # With the printed scaling no descent ends within the steps of the real run either.
    patches=[
        (mufm, name, value)
        for name, value in {
            **{"K": 3, "D": 6, "N": 20, "WEIGHT_DECAY": 0.02, "RATE": 2.0},
            "SCALINGS": ("plain",),
        }.items()
    ],
    slow=True,
)
STORIES = [CENTRAL_PATH, EXTENDED, UFM, GEODESIC, PERTURBED, LANDSCAPE, XUFM, MUFM]
