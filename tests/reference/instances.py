"""The named instances that drive the test suite, and configurations whose values are known exactly.

`INSTANCES[name]()` draws one instance; all are deterministic. None has a zero feature or a tie
between two class means or two head outputs, and every spectrum has a wide gap at its rank cut, so
that a value never hangs on a convention or on the last bit.

`CLOSED_FORMS[name]` is (builder, {key: value}); `CLOSED_SPECTRA[name]` the same instance's
{spectrum: values, largest first}, where known. A key that is not listed is not claimed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, log, sqrt

import numpy as np


@dataclass(frozen=True)
class Instance:
    """Arguments of a measurement: float64 features (n, d), labels (n,), a head or None."""

    features: np.ndarray
    labels: np.ndarray
    weight: np.ndarray | None = None
    bias: np.ndarray | None = None
    num_classes: int | None = None
    prior: str = "empirical"
    weight_decay: float = 0.0

    @property
    def options(self) -> dict:
        """The keyword arguments of `measure` and of `reference_metrics`."""
        return {
            "num_classes": self.num_classes,
            "prior": self.prior,
            "weight_decay": self.weight_decay,
        }


def shuffled(instance: Instance, rng) -> Instance:
    order = rng.permutation(len(instance.labels))
    return replace(instance, features=instance.features[order], labels=instance.labels[order])


def clusters(
    seed,
    sizes,
    d,
    *,
    spread=0.8,
    **options,
) -> Instance:
    """Anisotropic Gaussian clusters and a head that is roughly, not exactly, their means."""
    rng = np.random.default_rng(seed)
    k = len(sizes)
    labels = np.repeat(np.arange(k), sizes)
    means = rng.normal(size=(k, d)) + 0.5
    shapes = spread * np.linspace(0.4, 1.6, d) * np.eye(d) + 0.1 * spread * rng.normal(size=(d, d))
    features = means[labels] + rng.normal(size=(len(labels), d)) @ shapes
    weight = 0.3 * (means - means.mean(0)) + 0.05 * rng.normal(size=(k, d))
    bias = 1 / k - weight @ means.mean(0) + 0.05 * rng.normal(size=k)
    return shuffled(Instance(features, labels, weight, bias, k, **options), rng)


def balanced() -> Instance:
    return clusters(1, [12] * 5, 8)


def imbalanced() -> Instance:
    return clusters(2, [2, 5, 9, 20, 60], 7)


def uniform_prior() -> Instance:
    return clusters(2, [2, 5, 9, 20, 60], 7, prior="uniform")


def more_classes_than_dims() -> Instance:
    return clusters(3, [4, 7, 6, 5, 8, 4, 6, 9, 5, 4, 7, 6], 5, spread=0.5)


def fewer_samples_than_dims() -> Instance:
    return clusters(4, [3, 4, 2, 3], 20)


def two_classes() -> Instance:
    return clusters(5, [14, 23], 6)


def offset() -> Instance:
    """A common offset of 1e4 on every coordinate, which the bias takes up."""
    base = clusters(6, [10, 14, 8, 18], 6)
    shift = np.full(6, 1e4)
    return replace(base, features=base.features + shift, bias=base.bias - base.weight @ shift)


def near_collapse() -> Instance:
    """Spread 1e-4 of the means, which with the head are close to one simplex ETF."""
    rng = np.random.default_rng(7)
    k, d = 5, 9
    frame = simplex_frame(k, d) @ rotation(rng, d)
    means = frame + 1e-3 * rng.normal(size=(k, d))
    labels = np.repeat(np.arange(k), [11, 9, 12, 10, 8])
    features = means[labels] + 1e-4 * rng.normal(size=(len(labels), d))
    weight = frame + 1e-3 * rng.normal(size=(k, d))
    bias = 1 / k + 1e-3 * rng.normal(size=k)
    return shuffled(Instance(features, labels, weight, bias, k), rng)


def absent_class() -> Instance:
    """Classes 2 and 5 of six have no sample; their heads still vote, and win some."""
    base = clusters(8, [9, 13, 10, 7, 12, 6], 7)
    kept = ~np.isin(base.labels, [2, 5])
    bias = base.bias + np.array([0, 0, 0.6, 0, 0, 0.4])
    return replace(base, features=base.features[kept], labels=base.labels[kept], bias=bias)


def single_sample_class() -> Instance:
    return clusters(9, [10, 1, 12, 7], 6)


def no_bias() -> Instance:
    return replace(clusters(10, [9, 13, 11, 7], 6), bias=None)


def weight_decay() -> Instance:
    return clusters(11, [8, 12, 15, 10], 6, weight_decay=5e-3)


def weight_decay_no_bias() -> Instance:
    return replace(clusters(12, [8, 12, 15, 10], 6, weight_decay=5e-3), bias=None)


def one_dimension() -> Instance:
    return clusters(13, [9, 12, 7], 1, spread=0.5)


def relu() -> Instance:
    """Non-negative features: many exact zeros, and three coordinates that are always zero."""
    base = clusters(14, [12, 9, 14, 11], 12)
    alive = np.isin(np.arange(12), [2, 7, 8], invert=True)
    return replace(base, features=np.maximum(base.features, 0) * alive)


INSTANCES: dict[str, Callable[[], Instance]] = {
    build.__name__: build
    for build in (
        balanced,
        imbalanced,
        uniform_prior,
        more_classes_than_dims,
        fewer_samples_than_dims,
        two_classes,
        offset,
        near_collapse,
        absent_class,
        single_sample_class,
        no_bias,
        weight_decay,
        weight_decay_no_bias,
        one_dimension,
        relu,
    )
}


def rotation(rng, d):
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


def simplex_frame(k, d):
    """(k, d): the rows of I - 11^T/k in the first k of d >= k coordinates."""
    return np.eye(k, d) - np.pad(np.full((k, k), 1 / k), ((0, 0), (0, d - k)))


# K = 4 class means that are the rows of P = I - 11^T/4 (entries 3/4 and -1/4, exact in binary),
# three copies of each; W = M^T, no bias. Then W h = P P e_c = P e_c = e_c - 1/4, so every sample's
# loss is 1/2 * 4 * (1/4)^2 = 1/8. The uncentred second moment is P/4, so
# W_LS = (1/4) P (P/4)^+ = P: the head is on the central path and all the loss is its NC2/3 part.
# For NC2 of the orthogonal frame: ||P||_F = sqrt(3), <P / sqrt(3), I / 2> = 3 / (2 sqrt(3)),
# distance sqrt(2 - sqrt(3)).
def simplex_etf() -> Instance:
    labels = np.repeat(np.arange(4), 3)
    frame = simplex_frame(4, 6)
    return Instance(frame[labels], labels, frame, None, 4)


COLLAPSED = {
    "fuzziness": 0.0,
    "nc1": 0.0,
    "nc1_quotient": 0.0,
    "pfc1": 0.0,
    "vci": 0.0,
    "cosine_within": 0.0,
    "class_separation": 1.0,
    "linear_probe_mse": 0.0,
    "within_in_signal": 0.0,
    "within_off_signal": 0.0,
    "cdnv": 0.0,
    "ncc_accuracy": 1.0,
    "pfc3": 1.0,
}
ETF_SPREADS = {
    "nc2_lognorm_std_means": 0.0,
    "gnc2_log_std": 0.0,
    "gnc2_riesz_cv": 0.0,
    "gnc2_distance_cv": 0.0,
}
ETF_OF_FOUR = {
    **ETF_SPREADS,
    "gnc2_log": -log(8 / 3) / 2,
    "gnc2_riesz": sqrt(3 / 8),
    "gnc2_distance": sqrt(8 / 3),
    "seli_means": 0.0,
}
ETF_MEANS = {
    "nc2_equinorm_means": 0.0,
    "nc2_equiangular_means": 0.0,
    "nc2_maxangle_means": 0.0,
    "nc2_etf": 0.0,
    "pfc2": 0.0,
}
THREE_ALIKE = {
    "lidar": 3.0,
    "effective_rank_features": 3.0,
    "participation_ratio": 3.0,
    "alpha_req": 0.0,
}
ETF_WEIGHTS = {
    "nc2_equinorm_weights": 0.0,
    "nc2_equiangular_weights": 0.0,
    "nc2_maxangle_weights": 0.0,
    "nc2_lognorm_std_weights": 0.0,
}
DUAL_ETF = {
    **COLLAPSED,
    **ETF_MEANS,
    **ETF_WEIGHTS,
    **ETF_OF_FOUR,
    "seli_weights": 0.0,
    "seli_logits": 0.0,
    "nc0": 0.0,
    "nc0_norm": 0.0,
    "unc3": 0.0,
    "unc3_mean": 1.0,
    **THREE_ALIKE,
    "rankme": 3.0,
    "nc2_of": sqrt(2 - sqrt(3)),
    "nc3_self_duality": 0.0,
    "nc3_alignment": 0.0,
    "nc3_etf": 0.0,
    "accuracy": 1.0,
    "nc4_disagreement": 0.0,
    "mse_nc1": 0.0,
    "mse_off_path": 0.0,
}


# The same with bias 1/4: the outputs are the targets.
def simplex_etf_with_bias() -> Instance:
    return replace(simplex_etf(), bias=np.full(4, 0.25))


# Means 2 e_c in R^5, K = 4, two copies; W = M^T, no bias. Outputs 4 e_c: loss 1/2 * 3^2. W_LS = I/2
# reaches zero, so all of it is off the path. Centred, the means are 2 P: an exact ETF.
# <I/2, P/sqrt(3)> = sqrt(3)/2, so self-duality is 2 - sqrt(3). Cosines of the rows of W are 0,
# 1/3 from -1/3. Mean direction (1/4) sum e_c has squared length 1/4; the separation stays 1.
# The rows sum to (2, 2, 2, 2), of length 4, and ||W||_F = 4: NC0 is 4/(2 * 4). cos(e_c, P e_c) is
# sqrt(3/4). For equal sizes SELI is the simplex: <I/2, P/sqrt(3)> = sqrt(3)/2.
def orthogonal_frame() -> Instance:
    labels = np.repeat(np.arange(4), 2)
    frame = 2 * np.eye(4, 5)
    return Instance(frame[labels], labels, frame, None, 4)


# VCI obs. 4.2: Sigma_B = diag(1, 0), Sigma_W = I, from means (+-1, 0) and the four corners
# (+-1, +-1) around each. Sigma_T = diag(2, 1): nu = 1/2, vci = 1/2, omega = sqrt(2 * 1) with C = 2,
# probe loss -1/4 * 1/2 + 1/2 - 1/4 = 1/8; cdnv (2 + 2) / (2 * 4).
def observation_4_2() -> Instance:
    labels = np.repeat([0, 1], 4)
    means = np.array([[1.0, 0.0], [-1.0, 0.0]])
    corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    return Instance(means[labels] + np.tile(corners, (2, 1)), labels)


# Its image under U = [[1, 1], [0, 1]]: Sigma_B stays, Sigma_W = U U^T = [[2, 1], [1, 1]], so the
# fuzziness doubles; vci, probe loss and omega do not move. cdnv (3 + 3) / (2 * 4).
def observation_4_2_sheared() -> Instance:
    base = observation_4_2()
    return replace(base, features=base.features @ np.array([[1.0, 1.0], [0.0, 1.0]]).T)


OBSERVATION_4_2_COMMON = {"vci": 0.5, "linear_probe_mse": 0.125, "within_off_signal": 1.0}


# d = 9, K = 4, means m e_c with m = 4; each class holds m e_c + r e_a and m e_c - r e_a for every
# axis a, r = 3. Then Sigma_c = (2 r^2 / 2d) I = s I with s = r^2/d = 1, and
# Sigma_B = (m^2/K) P (on the first four axes) = b P, b = 4, P = I - 11^T/4 of rank 3. So
#   fuzziness (K-1) s/b = 3/4           nc1_quotient d s / ((K-1) b) = 9/12
#   vci 1 - b/(b+s) = 1/5               probe -(K-1)/(2K) b/(b+s) + (K-1)/(2K) = 3/8 * 1/5
#   in, off signal (K-1) s, (d-K+1) s   cdnv d s / ||mu_c - mu_c'||^2 = 9/32
#   omega = sqrt(C nu/(1-nu)) = sqrt(C b/s) = m/sqrt(s) = 4
# Unit vectors: 2 (d-1) of the 2d are (4 e_c +- 3 e_a)/5, the other two (1 and 7 times e_c) are e_c,
# so their mean is q e_c, q = (8 * 4/5 + 1)/9 = 7.4/9: cosine_within 1 - q^2, total 1 - q^2/4.
# The head is W_LS = (1/K) M~^T Sigma_T^+ = (m/K)/(b+s) P = P/5, b_LS = 1/4 - W mu_G = 1/4: on the
# path, where with 1 - nu = 1/5 the losses are (K-1)/(2K) (1-nu), (K-1)/(2K) nu (1-nu) and
# (K-1)/(2K) (1-nu)^2. A sample is at distance r = 3 from its mean and at least
# sqrt(m^2 + (m-r)^2) > 4 from the others'. Uncentred means are m I: NC2 of the frame is 0.
def signed_displacements() -> Instance:
    d, k, m, r = 9, 4, 4.0, 3.0
    steps = r * np.vstack([np.eye(d), -np.eye(d)])
    labels = np.repeat(np.arange(k), 2 * d)
    features = m * np.eye(k, d)[labels] + np.tile(steps, (k, 1))
    return Instance(features, labels, simplex_frame(k, d) / 5, np.full(k, 0.25), k)


# Two classes, priors (1/4, 3/4), both with Sigma_c = s I, s = r^2/d = 1 from r = 2 in d = 4 (the
# larger class repeats its samples three times), means distance 4 apart. Sigma_B = p q 16 u u^T with
# p q = 3/16: b = 3. fuzziness s/b = 1/3; vci s/(s+b) = 1/4; quotient d s/b = 4/3; cdnv
# 8/(2 * 16). Probe, general prior: 1/2 (1 - p^2 - q^2) = p q, less
# 1/2 (p^2 q^2 + q^2 p^2) 16/(s+b) = p^2 q^2 * 4: 3/16 - 9/64 = 3/64. omega sqrt(2 b/s) = sqrt(6).
def two_sizes() -> Instance:
    d = 4
    steps = 2 * np.vstack([np.eye(d), -np.eye(d)])
    labels = np.repeat([0, 1], [2 * d, 6 * d])
    means = np.array([[1.0, 1, 1, 1], [3.0, 3, 3, 3]])
    return Instance(means[labels] + np.tile(steps, (4, 1)), labels, prior="empirical")


# Equal weights: p q = 1/4, b = 4. fuzziness 1/4; vci 1/5; quotient 1; probe 1/4 - 2/16 * 16/5 / 2
# = 1/20; omega sqrt(8).
def two_sizes_uniform() -> Instance:
    return replace(two_sizes(), prior="uniform")


# Centred means +-e_1, +-3 e_2, two copies: norms 1, 1, 3, 3 (mean 2, deviation 1); of the ordered
# pairs a third have cosine -1 and the rest 0: mean -1/3, variance 1/3 - 1/9; |cos + 1/3| averages
# (2/3 + 2 * 1/3)/3. Gram blocks [[1,-1],[-1,1]] and 9 times that: Frobenius norm 2 sqrt(82), trace
# 20, rows sum to 0, so its inner product with the unit ETF is 20/(2 sqrt(82) sqrt(3)) and with the
# unit frame I/2 20/(4 sqrt(82)). The means span 2 dimensions and not min(d, K - 1) = 3, by which
# vci divides: collapsed, yet vci = 1 - 2/3, and the probe's loss is 3/8 - 2/8. Of the six pairs of
# directions two are at distance 2 and four at sqrt(2): inverse distances 1/2 and 1/sqrt(2), whose
# squares average 5/12; the squares of the distances average 8/3.
def kite() -> Instance:
    means = np.array([[1.0, 0, 0], [-1, 0, 0], [0, 3, 0], [0, -3, 0]])
    labels = np.repeat(np.arange(4), 2)
    return Instance(means[labels], labels)


# Sizes 1, 3, 3, 5: the singular value decomposition Z = V L U^T of the centred one-hot labels (4 x
# 12). Features sqrt(L) U^T and weight V sqrt(L) are the SELI geometry: W h = Z.
def seli() -> Instance:
    labels = np.repeat(np.arange(4), [1, 3, 3, 5])
    encoded = simplex_frame(4, 4)[:, labels]
    left, values, right = np.linalg.svd(encoded, full_matrices=False)
    roots = np.sqrt(values[:3])
    return Instance(right[:3].T * roots, labels, left[:, :3] * roots, None, 4)


CLOSED_FORMS: dict[str, tuple[Callable[[], Instance], dict[str, float]]] = {
    "simplex_etf": (simplex_etf, {**DUAL_ETF, "mse_loss": 0.125, "mse_nc23": 0.125}),
    "simplex_etf_with_bias": (
        simplex_etf_with_bias,
        {**DUAL_ETF, "mse_loss": 0.0, "mse_nc23": 0.0},
    ),
    "orthogonal_frame": (
        orthogonal_frame,
        {
            **COLLAPSED,
            **ETF_MEANS,
            **ETF_WEIGHTS,
            **ETF_OF_FOUR,
            "nc0": 0.5,
            "nc0_norm": 4.0,
            "unc3": 0.0,
            "unc3_mean": sqrt(3) / 2,
            "seli_weights": sqrt(2 - sqrt(3)),
            **THREE_ALIKE,
            "rankme": 4.0,
            "nc2_maxangle_weights": 1 / 3,
            "nc2_of": 0.0,
            "nc3_self_duality": 2 - sqrt(3),
            "nc3_alignment": 0.0,
            "nc3_etf": 0.0,
            "accuracy": 1.0,
            "nc4_disagreement": 0.0,
            "mse_loss": 4.5,
            "mse_nc1": 0.0,
            "mse_nc23": 0.0,
            "mse_off_path": 4.5,
        },
    ),
    "observation_4_2": (
        observation_4_2,
        {
            **OBSERVATION_4_2_COMMON,
            "fuzziness": 1.0,
            "nc1": 0.5,
            "nc1_quotient": 2.0,
            "within_in_signal": 1.0,
            "cdnv": 0.5,
            "effective_rank_features": 3 / 2 ** (2 / 3),
            "participation_ratio": 9 / 5,
        },
    ),
    "observation_4_2_sheared": (
        observation_4_2_sheared,
        {
            **OBSERVATION_4_2_COMMON,
            "fuzziness": 2.0,
            "nc1": 1.0,
            "nc1_quotient": 3.0,
            "within_in_signal": 2.0,
            "cdnv": 0.75,
        },
    ),
    "signed_displacements": (
        signed_displacements,
        {
            **ETF_MEANS,
            **ETF_WEIGHTS,
            **ETF_OF_FOUR,
            "seli_weights": 0.0,
            "fuzziness": 0.75,
            "nc1": 0.75 / 4,
            "nc1_quotient": 0.75,
            "pfc1": 0.75,
            "vci": 0.2,
            "linear_probe_mse": 0.075,
            "within_in_signal": 3.0,
            "within_off_signal": 6.0,
            "cdnv": 9 / 32,
            "effective_rank_features": 21 / 5 ** (5 / 7),
            "participation_ratio": 49 / 9,
            "cosine_within": 1 - (7.4 / 9) ** 2,
            "class_separation": 1 - (1 - (7.4 / 9) ** 2) / (1 - (7.4 / 9) ** 2 / 4),
            "nc2_of": 0.0,
            "nc3_self_duality": 0.0,
            "nc3_alignment": sqrt(2 - sqrt(3)),
            "nc3_etf": 0.0,
            "ncc_accuracy": 1.0,
            "pfc3": 1.0,
            "accuracy": 1.0,
            "nc4_disagreement": 0.0,
            "mse_loss": 0.075,
            "mse_nc1": 0.06,
            "mse_nc23": 0.015,
            "mse_off_path": 0.0,
        },
    ),
    "two_sizes": (
        two_sizes,
        {
            "fuzziness": 1 / 3,
            "nc1": 1 / 6,
            "nc1_quotient": 4 / 3,
            "vci": 0.25,
            "linear_probe_mse": 3 / 64,
            "within_in_signal": 1.0,
            "within_off_signal": 3.0,
            "cdnv": 0.25,
            "effective_rank_features": 7 / 4 ** (4 / 7),
            "participation_ratio": 49 / 19,
        },
    ),
    "two_sizes_uniform": (
        two_sizes_uniform,
        {
            "fuzziness": 0.25,
            "nc1": 0.125,
            "nc1_quotient": 1.0,
            "vci": 0.2,
            "linear_probe_mse": 0.05,
            "within_in_signal": 1.0,
            "within_off_signal": 3.0,
            "cdnv": 0.25,
        },
    ),
    "seli": (
        seli,
        {
            "seli_means": 0.0,
            "seli_weights": 0.0,
            "seli_logits": 0.0,
            "nc3_etf": 0.0,
            "nc0": 0.0,
            "cosine_within": 0.0,
            "accuracy": 1.0,
        },
    ),
    "kite": (
        kite,
        {
            **COLLAPSED,
            "vci": 1 / 3,
            "linear_probe_mse": 0.125,
            "nc2_lognorm_std_means": log(3) / 2,
            "gnc2_log": -2 / 3 * log(2),
            "gnc2_log_std": log(2) / sqrt(18),
            "gnc2_riesz": (1 + sqrt(8)) / 6,
            "gnc2_riesz_cv": sqrt(5 / 12 / ((1 + sqrt(8)) / 6) ** 2 - 1),
            "gnc2_distance": (2 + sqrt(8)) / 3,
            "gnc2_distance_cv": sqrt(24 / (2 + sqrt(8)) ** 2 - 1),
            "seli_means": sqrt(2 - 20 / sqrt(3 * 82)),
            "nc2_equinorm_means": 0.5,
            "nc2_equiangular_means": sqrt(2) / 3,
            "nc2_maxangle_means": 4 / 9,
            "nc2_etf": sqrt(2 - 20 / sqrt(3 * 82)),
            "pfc2": sqrt(2 - 20 / sqrt(3 * 82)),
            "nc2_of": sqrt(2 - 10 / sqrt(82)),
        },
    ),
}

CLOSED_SPECTRA: dict[str, dict[str, tuple[float, ...]]] = {
    "simplex_etf": {
        "between": (0.25, 0.25, 0.25, 0, 0, 0),
        "within": (0, 0, 0, 0, 0, 0),
        "total": (0.25, 0.25, 0.25, 0, 0, 0),
        "snr_singular_values": (inf, inf, inf),
    },
    "observation_4_2": {
        "between": (1, 0),
        "within": (1, 1),
        "total": (2, 1),
        "snr_singular_values": (sqrt(2),),
    },
    "observation_4_2_sheared": {"between": (1, 0), "snr_singular_values": (sqrt(2),)},
    "signed_displacements": {
        "between": (4, 4, 4, 0, 0, 0, 0, 0, 0),
        "within": (1,) * 9,
        "total": (5, 5, 5, 1, 1, 1, 1, 1, 1),
        "snr_singular_values": (4, 4, 4),
    },
    "two_sizes": {
        "between": (3, 0, 0, 0),
        "within": (1, 1, 1, 1),
        "total": (4, 1, 1, 1),
        "snr_singular_values": (sqrt(6),),
    },
    "two_sizes_uniform": {
        "between": (4, 0, 0, 0),
        "total": (5, 1, 1, 1),
        "snr_singular_values": (sqrt(8),),
    },
}
