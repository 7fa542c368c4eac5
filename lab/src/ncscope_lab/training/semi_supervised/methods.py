r"""Methods for unlabelled images: the part of the objective in which the rows of table 1 differ.

A step reads weak views of $B$ labelled images and one or two views of $\mu B$ unlabelled images.
The first view of an unlabelled image gives the *target*, without gradient; the last one is trained
to match the target. Methods with one kind of view have $\mu=1$, all others $\mu=7$.

| method | views | target | matched by | weight |
|---|---|---|---|---|
| Pi model | weak, weak | softmax | squared error | 10, ramp |
| pseudo-label | weak | class, confidence >= .95 | cross-entropy | 1, ramp |
| mean teacher | weak, weak | softmax of the averaged network | squared error | 50, ramp |
| UDA | weak, strong | softmax of logits / .4, confidence >= .8 | cross-entropy | 1 |
| FixMatch | weak, strong | class, confidence >= .95 | cross-entropy | 1 |
| FlexMatch | weak, strong | class, class thresholds up to .95 | cross-entropy | 1 |
| FreeMatch | weak, strong | class, adaptive class thresholds | cross-entropy, fairness | 1 |
| SoftMatch | weak, strong | class, weighted by confidence | cross-entropy | 1 |

INFO took these baselines from TorchSSL (section 6.3), so weights, views, $\mu$ and the ramp, which
rises from 0 to 1 over the first 40 % of the steps, are TorchSSL's. The docstring of each class
states where the method's paper differs. In this laboratory all views that the trained network reads
pass through it together. TorchSSL does the same, except for the Pi model, pseudo-label and mean
teacher, whose unlabelled views pass separately and leave the running statistics of batch norms as
they are. The squared error is the mean over classes, not the sum.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ncscope.losses.pseudo_labels import consistency_loss, fairness_loss
from ncscope_lab.training.semi_supervised.method import (
    Method,
    Outputs,
    Progress,
    Step,
    anneal_threshold,
    ramp,
)
from ncscope_lab.training.semi_supervised.settings import Annealing, FewLabels
from ncscope_lab.training.semi_supervised.thresholds import (
    AdaptiveThresholds,
    CurriculumThresholds,
    FixedThreshold,
    GaussianWeights,
    PseudoLabels,
)


class PiModel(Method):
    r"""Pi model: two weak views of an image should have the same softmax output.

    $\mathcal L_s+r\lambda_u\frac1n\sum_i\frac1C\lVert Q_i-q_i\rVert^2$ with ramp $r$. Source: Laine
    and Aila 2017, who take the gradient through both views; TorchSSL, as here, through one.

    Args:
        num_classes: $C$.
        weight: $\lambda_u$.
        batches: Number of batches in the run.
        rise: Share of the run over which $r$ rises.
    """

    views = ("weak", "weak")

    def __init__(self, num_classes: int, weight: float, batches: int, rise: float) -> None:
        super().__init__(FixedThreshold(num_classes, threshold=0.0), weight)
        self._rise = rise
        self.progress = Progress(batches)

    def forward(self, outputs: Outputs) -> Step:
        """Return the loss of a step; all pseudo-labels are trusted."""
        target = outputs.target.softmax(dim=1)
        apart = F.mse_loss(outputs.trained.softmax(dim=1), target)
        weight = self._weight * ramp(self.progress(), self._rise)
        loss = F.cross_entropy(outputs.labelled, outputs.labels) + weight * apart
        return Step(loss, *self.trust(target))


class MeanTeacher(PiModel):
    """Mean teacher: the Pi model, with targets from the moving average of the network.

    Source: Tarvainen and Valpola 2017. The average is the one that is also tested, of decay
    `Optimisation.average`. In the forward pass that gives targets its batch norms use statistics of
    the batch, as in TorchSSL, and its running statistics stay. In the paper the weight rises as
    $e^{-5(1-t)^2}$; here, as in TorchSSL, linearly.
    """

    averaged_teacher = True


class PseudoLabel(Method):
    r"""Pseudo-label: the network's confident decisions on weak views are labels of the same views.

    $\mathcal L_s-r\lambda_u\frac1n\sum_{i\text{ trusted}}\log q_{i\hat q_i}$ with ramp $r$. Source:
    Lee 2013, who has neither augmentation nor a threshold, and whose weight rises to 3. Threshold
    and weight are TorchSSL's.

    Args:
        num_classes: Number of classes of the data.
        threshold: The least confidence that is trusted.
        weight: $\lambda_u$.
        batches: Number of batches in the run.
        rise: Share of the run over which $r$ rises.
    """

    views = ("weak",)

    def __init__(
        self, num_classes: int, threshold: float, weight: float, batches: int, rise: float
    ) -> None:
        super().__init__(FixedThreshold(num_classes, threshold), weight)
        self._rise = rise
        self.progress = Progress(batches)

    def forward(self, outputs: Outputs) -> Step:
        """Return the loss of a step."""
        chosen = self.trust(outputs.target.softmax(dim=1))
        weight = self._weight * ramp(self.progress(), self._rise)
        return _step(outputs, chosen, weight)


class UDA(Method):
    r"""UDA: the strong view should have the sharpened softmax output of the weak view.

    $\mathcal L_s-\lambda_u\frac1n\sum_{i\text{ trusted}}\sum_cs_{ic}\log Q_{ic}$ with
    $s_i=\operatorname{softmax}(z_i/T)$ of the weak view's logits $z_i$. Source: UDA (Xie et
    al. 2020), consistency objective with masking and sharpening; the divergence in the objective
    differs from this cross-entropy by the target's entropy, which has no gradient.

    With an annealing, $\mathcal L_s$ is the mean over those labelled images whose probability of
    the correct class is at most `anneal_threshold`, as in UDA; TorchSSL reads the largest
    probability and divides by the number of all labelled images. UDA's script for CIFAR-10 and
    TorchSSL's settings have no annealing, so the default is none.

    Args:
        num_classes: Number of classes of the data.
        threshold: The least confidence that is trusted.
        weight: $\lambda_u$.
        temperature: $T$.
        annealing: Schedule of the limit on the confidence in labelled images.
        batches: Number of batches in the run.
    """

    def __init__(
        self,
        num_classes: int,
        threshold: float,
        weight: float,
        temperature: float,
        annealing: Annealing,
        batches: int,
    ) -> None:
        super().__init__(FixedThreshold(num_classes, threshold), weight)
        self._temperature, self._annealing = temperature, annealing
        self.progress = Progress(batches)

    def forward(self, outputs: Outputs) -> Step:
        """Return the loss of a step."""
        chosen = self.trust(outputs.target.softmax(dim=1))
        sharpened = (outputs.target / self._temperature).softmax(dim=1)
        costs = F.cross_entropy(outputs.trained, sharpened, reduction="none")
        loss = self._compute_labelled_loss(outputs) + self._weight * (costs * chosen.trusted).mean()
        return Step(loss, *chosen)

    def _compute_labelled_loss(self, outputs: Outputs) -> Float[Tensor, ""]:
        limit = anneal_threshold(self._annealing, self.progress(), outputs.labelled.shape[1])
        costs = F.cross_entropy(outputs.labelled, outputs.labels, reduction="none")
        if self._annealing == "none":
            return costs.mean()
        kept = (-costs.detach()).exp() <= limit
        return (costs * kept).sum() / kept.sum().clamp(min=1)


class FixMatch(Method):
    r"""FixMatch: confident decisions on weak views are labels of strong views.

    $\mathcal L_s-\lambda_u\frac1n\sum_{i\text{ trusted}}\log Q_{i\hat q_i}$. Source: FixMatch
    (Sohn et al. 2020) (4).
    """

    def forward(self, outputs: Outputs) -> Step:
        """Return the loss of a step."""
        return _step(outputs, self.trust(outputs.target.softmax(dim=1)), self._weight)


class FlexMatch(Method):
    """FlexMatch: FixMatch, with thresholds that are lower for classes that are learnt less.

    Source: FlexMatch (Zhang et al. 2021); see `CurriculumThresholds`.
    """

    trust: CurriculumThresholds

    def forward(self, outputs: Outputs) -> Step:
        """Return the loss of a step."""
        chosen = self.trust(outputs.target.softmax(dim=1), outputs.images)
        return _step(outputs, chosen, self._weight)


class FreeMatch(Method):
    r"""FreeMatch: FixMatch with adaptive thresholds, and the fairness loss.

    Source: FreeMatch (Wang et al. 2023) (8), (11); see `AdaptiveThresholds`.

    Args:
        trust: Rule that decides which pseudo-labels to trust.
        weight: Weight of the unlabelled loss.
        fairness: Weight of the fairness loss.
    """

    trust: AdaptiveThresholds

    def __init__(self, trust: AdaptiveThresholds, weight: float, fairness: float) -> None:
        super().__init__(trust, weight)
        self._fairness = fairness

    def forward(self, outputs: Outputs) -> Step:
        """Return the loss of a step."""
        chosen = self.trust(outputs.target.softmax(dim=1))
        plain = _step(outputs, chosen, self._weight)
        trust, strong = self.trust, outputs.trained.softmax(dim=1)
        fair = fairness_loss(trust.probabilities, trust.histogram, strong, chosen.trusted)
        return plain._replace(loss=plain.loss + self._fairness * fair)


class SoftMatch(Method):
    """SoftMatch: FixMatch, with a weight for each pseudo-label in place of a threshold.

    Source: SoftMatch (Chen et al. 2023); see `GaussianWeights`. The information terms take the
    pseudo-labels of confidence from the mean on.
    """

    trust: GaussianWeights

    def forward(self, outputs: Outputs) -> Step:
        """Return the loss of a step."""
        weights = self.trust(outputs.target.softmax(dim=1))
        labels = outputs.target.argmax(dim=1)
        costs = F.cross_entropy(outputs.trained, labels, reduction="none")
        loss = F.cross_entropy(outputs.labelled, outputs.labels)
        loss = loss + self._weight * (weights * costs).mean()
        return Step(loss, labels, weights == 1)


def _step(outputs: Outputs, chosen: PseudoLabels, weight: float) -> Step:
    """Return the step of a method that trains on trusted classes by cross-entropy."""
    loss = F.cross_entropy(outputs.labelled, outputs.labels)
    return Step(loss + weight * consistency_loss(outputs.trained, *chosen), *chosen)


def method(settings: FewLabels, num_classes: int, count: int) -> Method | None:
    """Return the method that the settings select, in its initial state; None for supervised runs.

    Args:
        settings: Settings of the run.
        num_classes: Number of classes of the data.
        count: Number of unlabelled images.
    """
    weight, threshold, rise = settings.unlabelled_weight, settings.threshold, settings.ramp
    batches = settings.optimisation.epochs * settings.steps_per_epoch
    match settings.method:
        case "supervised":
            return None
        case "pi-model":
            return PiModel(num_classes, weight, batches, rise)
        case "mean-teacher":
            return MeanTeacher(num_classes, weight, batches, rise)
        case "pseudo-label":
            return PseudoLabel(num_classes, threshold, weight, batches, rise)
        case "uda":
            how = settings.target_temperature, settings.annealing
            return UDA(num_classes, threshold, weight, *how, batches)
        case "fixmatch":
            return FixMatch(FixedThreshold(num_classes, threshold), weight)
        case "flexmatch":
            return FlexMatch(CurriculumThresholds(num_classes, count, threshold), weight)
        case "freematch":
            limits = settings.least_threshold, settings.most_threshold
            free = AdaptiveThresholds(num_classes, settings.memory, limits, settings.mask_first)
            return FreeMatch(free, weight, settings.fairness_weight)
        case "softmatch":
            return SoftMatch(GaussianWeights(num_classes, settings.memory), weight)
