"""Synthetic but realistic records."""

import numpy as np
import pytest
from numpy.typing import NDArray

from ncscope.measurement.records import GeodesicRecord, LayerRecord, Measurement, ModelRecord

CLASSES, PER_CLASS = 6, 20
DIMS = (48, 48, 32, 32, 32, 32)
EPOCHS = (0, 1, 3, 10, 40)
Array = NDArray[np.float64]


@pytest.fixture(scope="session")
def measurements() -> list[Measurement]:
    """A run over which features collapse, deep layers first; test features less so."""
    return [
        Measurement(probe(epoch, split), epoch, split)
        for epoch in EPOCHS
        for split in ("train", "test")
    ]


@pytest.fixture(scope="session")
def epochs() -> tuple[int, ...]:
    return EPOCHS


@pytest.fixture(scope="session")
def single_layer() -> ModelRecord:
    """One layer with everything; some of it undefined."""
    layer = probe(40, "train").layers[-1]
    metrics = {**layer.metrics, "novel_metric": float("nan")}
    spectra = {**layer.spectra, "snr_singular_values": [*[9.0] * 4, float("inf")]}
    notes = ("novel_metric is undefined: it has no value",)
    record = LayerRecord("features", metrics, notes, CLASSES, 120, 32, spectra, layer.gram)
    return ModelRecord(layers=(record,))


@pytest.fixture(scope="session")
def bare() -> ModelRecord:
    """One layer with two numbers and nothing else."""
    metrics = {"nc1_quotient": float("nan"), "ncc_accuracy": 0.5}
    notes = ("nc1_quotient is undefined: all class means coincide",)
    return ModelRecord(layers=(LayerRecord("<script>alert(1)</script>", metrics, notes, 2, 4, 1),))


def probe(epoch: int, split: str) -> ModelRecord:
    """All layers at one epoch."""
    generator = np.random.default_rng([epoch, len(split)])
    features = [
        layer_features(index, epoch, 1.0 if split == "train" else 2.5, generator)
        for index in range(len(DIMS))
    ]
    layers = tuple(
        layer_record(f"stage{1 + index // 2}.block{index % 2}", own, last=index == len(DIMS) - 1)
        for index, own in enumerate(features)
    )
    comparable = tuple(record.layer for record in layers if record.dim == DIMS[-1])
    return ModelRecord(
        layers, comparable, (0.0, 0.3, 0.62, 1.0), geodesic(features[2], features[-1])
    )


def layer_features(place: int, epoch: int, spread: float, generator: np.random.Generator) -> Array:
    """Samples by class by feature: means between random and simplex, spread shrinking."""
    depth, trained = place / (len(DIMS) - 1), np.log1p(epoch) / np.log1p(EPOCHS[-1])
    fixed = np.random.default_rng(0).normal(size=(CLASSES, DIMS[place])) * 0.6
    simplex = np.eye(CLASSES, DIMS[place]) * 3
    means = fixed * (1 - depth * trained) + simplex * depth * trained
    noise = spread * 1.4 * np.exp(-3.2 * depth * trained)
    shape = (CLASSES, PER_CLASS, DIMS[place])
    decay = np.linspace(1.5, 0.3, DIMS[place])
    return means[:, None] + noise * decay * generator.normal(size=shape)


def layer_record(name: str, features: Array, *, last: bool) -> LayerRecord:
    """The metrics that the tables and figures show most, from their formulas."""
    means = features.mean(1)
    centred = means - means.mean(0)
    within = np.einsum("kni,knj->ij", *[features - means[:, None]] * 2) / features[..., 0].size
    between = centred.T @ centred / CLASSES
    metrics = {
        "nc1_quotient": (quotient := float(np.trace(within) / np.trace(between))),
        "pfc1": quotient,
        "nc2_etf": (simplex := distance_to_simplex(centred)),
        "pfc2": simplex,
        "ncc_accuracy": (nearest := nearest_mean_accuracy(features)),
        "pfc3": nearest,
    }
    if not last:
        return LayerRecord(name, metrics, (), CLASSES, CLASSES * PER_CLASS, features.shape[-1])
    metrics |= {
        "vci": quotient / (1 + quotient),
        "cdnv": quotient / 5,
        "nc3_self_duality": simplex / 2 + 0.05,
        "nc4_disagreement": 1 - nearest,
        "accuracy": min(1.0, nearest + 0.01),
    }
    norms = np.linalg.norm(centred, axis=1)
    return LayerRecord(
        name,
        metrics,
        ("rank of the between-class scatter cut at 5",),
        CLASSES,
        CLASSES * PER_CLASS,
        features.shape[-1],
        {
            "between": [*eigenvalues(between)[: CLASSES - 1], 0.0],
            "within": eigenvalues(within),
            "total": eigenvalues(within + between),
            "snr_singular_values": [float(v) for v in np.linspace(2, 1, 5) / quotient**0.5],
        },
        (centred @ centred.T / np.outer(norms, norms)).tolist(),
    )


def eigenvalues(matrix: Array) -> list[float]:
    return [float(value) for value in np.linalg.eigvalsh(matrix)[::-1]]


def distance_to_simplex(centred: Array) -> float:
    gram = centred @ centred.T
    simplex = (np.eye(CLASSES) - 1 / CLASSES) / np.sqrt(CLASSES - 1)
    return float(np.linalg.norm(gram / np.linalg.norm(gram) - simplex))


def nearest_mean_accuracy(features: Array) -> float:
    means = features.mean(1)
    distances = np.linalg.norm(features[:, :, None] - means, axis=-1)
    return float((distances.argmin(-1) == np.arange(CLASSES)[:, None]).mean())


def geodesic(first: Array, last: Array) -> GeodesicRecord:
    positions = [step / 12 for step in range(13)]
    records = [layer_record("", (1 - t) * first + t * last, last=False) for t in positions]
    centred = [own.mean(1) - own.mean((0, 1)) for own in (first, last)]
    return GeodesicRecord(
        t=positions,
        pfc1=[record.metrics["pfc1"] for record in records],
        pfc2=[record.metrics["pfc2"] for record in records],
        pfc3=[record.metrics["pfc3"] for record in records],
        alignment=float((centred[0] * centred[1]).sum()),
        transport_cost=float(((centred[1] - centred[0]) ** 2).sum()),
    )
