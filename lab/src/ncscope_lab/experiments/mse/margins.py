"""Least perturbation of inputs that changes a network's decision, by Foolbox's DeepFool."""

import math
import warnings
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.errors import library_error


class Robustness(NamedTuple):
    """Result of DeepFool on some images.

    Attributes:
        margin: Mean over images of the perturbation's norm as a share of the image's.
        fooled: Share of the images whose perturbation changes the network's decision.
    """

    margin: float
    fooled: float


def deepfool_robustness(model: nn.Module, images: Float[Tensor, "n c h w"]) -> Robustness:
    r"""$\operatorname{Ave}_i\lVert r(x_i)\rVert_2/\lVert x_i\rVert_2$, with $r$ from DeepFool.

    $r(x)$ estimates the least perturbation of the network's input that changes its decision, right
    or wrong. The perturbed image may leave the range of pixels. The perturbation is 2 % longer than
    the steps to the boundary, DeepFool's usual overshoot. Source: MSE figures 9 and 11, after
    Moosavi-Dezfooli, Fawzi, Frossard 2016, algorithm 2 and (1)-(2). Range $[0,\infty)$; 0: every
    image is on a decision boundary.

    Args:
        model: Classifier; a copy of the classifier is attacked.
        images: Preprocessed inputs of the network, none of them zero, on the network's device.

    Returns:
        The mean, and how many of the perturbations did change the decision. Cost: up to 50 steps,
        usually under 10, each a pass forward and back for each of the 9 next likely classes.

    Raises:
        InputError: If Foolbox is not installed.
    """
    foolbox = _foolbox()
    copy = deepcopy(model).eval().requires_grad_(False)  # only gradients in the input are needed
    with torch.no_grad():
        decisions = copy(images).argmax(1)
    anywhere = (-math.inf, math.inf)
    network = foolbox.PyTorchModel(copy, bounds=anywhere, device=images.device)
    attack = foolbox.attacks.L2DeepFoolAttack()
    moved, _, changed = attack(network, images, decisions, epsilons=None)
    shares = (moved - images).flatten(1).norm(dim=1) / images.flatten(1).norm(dim=1)
    return Robustness(float(shares.double().mean()), float(changed.double().mean()))


def _foolbox() -> Any:
    try:
        with warnings.catch_warnings():
            # Foolbox 3.3 imports a filter from a deprecated SciPy module.
            warnings.simplefilter("ignore", DeprecationWarning)
            import foolbox
    except ModuleNotFoundError as error:
        raise library_error(name="foolbox") from error
    return foolbox
