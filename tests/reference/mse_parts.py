"""The parts of the MSE loss (MSE thms 1-2) from normal equations in 60 digits.

Every sample enters as it is: nothing is centred and no factor is shared. The features are float64
numbers taken as exact, so the formulas alone decide, down to any spread and any weight decay.
"""

from mpmath.ctx_mp import MPContext

from .instances import Instance

mp = MPContext()  # a context of its own: nobody else's precision is touched
mp.dps = 60

EXACTLY_ZERO = mp.mpf(10) ** -45  # of the largest eigenvalue: the rounding of 60 digits, and more


class NormalEquations:
    """Moments of the extended samples, and what the given classifier makes of them."""

    def __init__(self, instance: Instance):
        """Take the moments; every class has samples."""
        with_bias = instance.bias is not None
        samples = [_exact(row, with_bias) for row in instance.features]
        labels = [int(label) for label in instance.labels]
        k, e = len(instance.weight), len(samples[0])
        counts = [labels.count(c) for c in range(k)]
        uniform = instance.prior == "uniform"
        self.priors = [mp.mpf(1) / k if uniform else mp.mpf(n) / len(labels) for n in counts]
        self.means = [
            _mean([h for h, y in zip(samples, labels, strict=True) if y == c]) for c in range(k)
        ]
        self.given = mp.matrix(k, e)
        for c in range(k):
            offset = [instance.bias[c]] if with_bias else []
            self.given[c, :] = _exact([*instance.weight[c], *offset], with_bias=False).T
        self.second_moment = mp.matrix(e, e)  # Sigma_T + mu_G mu_G^T
        self.within, self.misfit = mp.matrix(e, e), mp.zero
        for h, y in zip(samples, labels, strict=True):
            share = self.priors[y] / counts[y]
            self.second_moment += share * (h * h.T)
            self.within += share * ((h - self.means[y]) * (h - self.means[y]).T)
            self.misfit += share * _squared(self.given * h - _one_hot(y, k)) / 2
        self.values, self.vectors = mp.eigsy(self.second_moment)

    def parts(self, decay: float) -> dict[str, float]:
        """The loss and its three parts."""
        (k, e), decay = (self.given.rows, self.given.cols), mp.mpf(float(decay))
        inverse = self._inverse(decay)
        best = mp.matrix(k, e)
        for c in range(k):
            best[c, :] = self.priors[c] * (self.means[c].T * inverse)
        shortfall = [_squared(best * self.means[c] - _one_hot(c, k)) for c in range(k)]
        ridge = decay * mp.eye(e)
        return {
            "mse_loss": float(self.misfit + _energy(self.given, ridge) / 2),
            "mse_nc1": float(_energy(best, self.within + ridge) / 2),
            "mse_nc23": float(mp.fdot(self.priors, shortfall) / 2),
            "mse_off_path": float(_energy(self.given - best, self.second_moment + ridge) / 2),
        }

    def _inverse(self, decay):
        """(Sigma_T + mu_G mu_G^T + lambda I)^-1, and without decay the pseudo-inverse."""
        cut = EXACTLY_ZERO * max(self.values)
        result = mp.matrix(self.given.cols, self.given.cols)
        for j, value in enumerate(self.values):
            value = value if value > cut else mp.zero
            if value + decay > 0:
                column = self.vectors[:, j]
                result += column * column.T / (value + decay)
        return result


def reference_mse_parts(instance: Instance) -> dict[str, float]:
    """The loss and its three parts at the instance's decay."""
    return NormalEquations(instance).parts(instance.weight_decay)


def _exact(row, with_bias):
    return mp.matrix([float(value) for value in row] + [1] * with_bias)


def _mean(vectors):
    total = vectors[0]
    for vector in vectors[1:]:
        total = total + vector
    return total / len(vectors)


def _one_hot(c, k):
    return mp.matrix([int(row == c) for row in range(k)])


def _squared(vector):
    return mp.fsum(value**2 for value in vector)


def _energy(rows, matrix):
    """tr V M V^T."""
    return mp.fsum(a * b for a, b in zip(rows * matrix, rows, strict=True))
