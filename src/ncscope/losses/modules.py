"""Losses as modules, which hold the parameters of a function and call it.

A loss without parameters needs no module: pass `squared_error` itself.
"""

from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from ncscope.arguments import check_arguments
from ncscope.losses.classification import (
    rescaled_squared_error,
    smoothed_cross_entropy,
    temperature_cross_entropy,
)
from ncscope.losses.information import head_entropy_difference, head_mutual_information
from ncscope.losses.regularisers import feature_and_classifier_decay, within_class_cosine


class _WithParameters(nn.Module):
    """Base of modules that show their parameters in their ``repr``."""

    def extra_repr(self) -> str:
        parameters = {name: value for name, value in vars(self).items() if isinstance(value, float)}
        return ", ".join(f"{name}={value}" for name, value in parameters.items())


@check_arguments
class _WithStrength(_WithParameters):
    """Base of terms that are added to a base loss with one factor."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = float(strength)


@check_arguments
class MutualInformationLoss(_WithStrength):
    r"""The term $-\lambda_{mi}\operatorname{MI}(G(f),G(V))$, to be added to a base loss.

    Source: INFO 6.2. Call it with the arguments of `head_mutual_information`.

    Args:
        strength: $\lambda_{mi}$.

    Example:
        >>> import torch
        >>> MutualInformationLoss(0.5)(torch.eye(2), torch.tensor([0, 1]), torch.eye(2))
        tensor(-0.3466)
    """

    def forward(
        self,
        features: Shaped[Tensor, "n d"],
        labels: Shaped[Tensor, " n"],
        weight: Shaped[Tensor, "k p"],
        selected: Bool[Tensor, " n"] | None = None,
    ) -> Float[Tensor, ""]:
        """Compute the term for one batch."""
        return -self.strength * head_mutual_information(features, labels, weight, selected)


@check_arguments
class EntropyDifferenceLoss(_WithStrength):
    r"""The term $+\lambda_{id}|H(G(f))-H(G(V))|$, to be added to a base loss.

    Source: INFO 6.2. Call it with the arguments of `head_entropy_difference`.

    Args:
        strength: $\lambda_{id}$.

    Example:
        >>> import torch
        >>> EntropyDifferenceLoss(0.5)(torch.eye(2), torch.tensor([0, 0]), torch.eye(2))
        tensor(0.3466)
    """

    def forward(
        self,
        features: Shaped[Tensor, "n d"],
        labels: Shaped[Tensor, " n"],
        weight: Shaped[Tensor, "k p"],
        selected: Bool[Tensor, " n"] | None = None,
    ) -> Float[Tensor, ""]:
        """Compute the term for one batch."""
        return self.strength * head_entropy_difference(features, labels, weight, selected)


@check_arguments
class WithinClassCosineLoss(_WithStrength):
    r"""The term $+\lambda R$, $R$ the `within_class_cosine`, to be added to a base loss.

    Source: VCI 6.3. Call it with features and labels.

    Args:
        strength: $\lambda$; a positive strength works against collapse.

    Example:
        >>> import torch
        >>> WithinClassCosineLoss(2.0)(torch.eye(2), torch.tensor([0, 0]))
        tensor(0.5000)
    """

    def forward(
        self, features: Shaped[Tensor, "n d"], labels: Shaped[Tensor, " n"]
    ) -> Float[Tensor, ""]:
        """Compute the term for one batch."""
        return self.strength * within_class_cosine(features, labels)


@check_arguments
class FeatureAndClassifierDecay(_WithParameters):
    r"""`feature_and_classifier_decay`, to be added to a base loss.

    Source: XUFM (3), PFC (2). Call it with features, weight and, if the bias decays too, the bias.

    Args:
        feature_decay: $\lambda_H$, on the mean squared length of the features.
        weight_decay: $\lambda_W$, on the classifier.

    Example:
        >>> import torch
        >>> FeatureAndClassifierDecay(0.1, 0.01)(torch.ones(4, 2), torch.eye(2))
        tensor(0.1100)
    """

    def __init__(self, feature_decay: float, weight_decay: float) -> None:
        super().__init__()
        self.feature_decay = float(feature_decay)
        self.weight_decay = float(weight_decay)

    def forward(
        self,
        features: Shaped[Tensor, "n d"],
        weight: Shaped[Tensor, "k d"],
        bias: Shaped[Tensor, " k"] | None = None,
    ) -> Float[Tensor, ""]:
        """Compute the term for one batch."""
        return feature_and_classifier_decay(
            features,
            weight,
            bias,
            feature_decay=self.feature_decay,
            weight_decay=self.weight_decay,
        )


@check_arguments
class RescaledSquaredErrorLoss(_WithParameters):
    """`rescaled_squared_error` of logits and labels.

    Source: Hui & Belkin 2021, section 5. Call it with logits and labels.

    Args:
        factor: $k$, on the true class's term.
        target: $M$, the true class's target.

    Example:
        >>> import torch
        >>> RescaledSquaredErrorLoss(2.0, 3.0)(torch.zeros(1, 3), torch.tensor([1]))
        tensor(9.)
    """

    def __init__(self, factor: float, target: float) -> None:
        super().__init__()
        self.factor, self.target = float(factor), float(target)

    def forward(
        self, logits: Shaped[Tensor, "n k"], labels: Shaped[Tensor, " n"]
    ) -> Float[Tensor, ""]:
        """Compute the loss of one batch."""
        return rescaled_squared_error(logits, labels, self.factor, self.target)


@check_arguments
class TemperatureCrossEntropyLoss(_WithParameters):
    r"""`temperature_cross_entropy` of logits and labels.

    Source: VCI 6.3. Call it with logits and labels.

    Args:
        temperature: $\tau$, above 0.

    Example:
        >>> import torch
        >>> TemperatureCrossEntropyLoss(2.0)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
        tensor(0.3133)
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = float(temperature)

    def forward(
        self, logits: Shaped[Tensor, "n k"], labels: Shaped[Tensor, " n"]
    ) -> Float[Tensor, ""]:
        """Compute the loss of one batch."""
        return temperature_cross_entropy(logits, labels, self.temperature)


@check_arguments
class SmoothedCrossEntropyLoss(_WithParameters):
    r"""`smoothed_cross_entropy` of logits and labels.

    Source: Szegedy et al. 2016, INFO figure 5. Call it with logits and labels.

    Args:
        smoothing: $\epsilon$ in $[0,1]$.

    Example:
        >>> import torch
        >>> SmoothedCrossEntropyLoss(0.1)(torch.zeros(1, 4), torch.tensor([2]))
        tensor(1.3863)
    """

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self.smoothing = float(smoothing)

    def forward(
        self, logits: Shaped[Tensor, "n k"], labels: Shaped[Tensor, " n"]
    ) -> Float[Tensor, ""]:
        """Compute the loss of one batch."""
        return smoothed_cross_entropy(logits, labels, self.smoothing)
