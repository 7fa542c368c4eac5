"""Share of the pseudo-labels that are trusted, and their accuracy.

The true labels of unlabelled images are read here for evaluation only; training never reads them.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.data.images import Images
from ncscope.data.loaders import make_measurement_loader
from ncscope.losses.pseudo_labels import mark_trusted
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.forward import forward, logits_of
from ncscope.stats.processes import ALL
from ncscope_lab.training.semi_supervised.unlabelled import UNKNOWN
from ncscope_lab.training.supervised import Bench

_BATCH = 256


def pseudo_label_values(
    bench: Bench, images: Images, thresholds: Float[Tensor, " k"]
) -> dict[str, float]:
    """Measure the training network's pseudo-labels of unlabelled images without augmentation.

    Args:
        bench: The run.
        images: The unlabelled images.
        thresholds: Least confidence that is trusted, for each class.

    Returns:
        ``mask_rate``, the share of pseudo-labels that are trusted; ``pseudo_label_accuracy``, the
        share of correct ones among the trusted pseudo-labels of images whose label is known, NaN
        if there are none; ``threshold``, the largest class threshold, which is the global one;
        and for each class ``threshold_0``... and ``histogram_0``..., the share of the class among
        the trusted pseudo-labels.
    """
    fabric = bench.fabric
    thresholds = thresholds.to(fabric.device)
    loader = make_measurement_loader(
        images, _BATCH, fabric.global_rank, fabric.world_size, bench.workers
    )
    model, classes = bench.learner.model, bench.data.num_classes
    counts = torch.zeros(classes + 3, dtype=torch.float64, device=fabric.device)
    with evaluation_mode(model):
        for batch in loader:
            inputs, labels = fabric.to_device(batch)
            counts += _counts(model, inputs, labels, thresholds)
    *chosen, seen, known, right = ALL.sum(counts, guarded=False).tolist()
    picked = sum(chosen)
    shares = [count / picked if picked else float("nan") for count in chosen]
    return {
        "mask_rate": picked / seen,
        "pseudo_label_accuracy": right / known if known else float("nan"),
        "threshold": float(thresholds.max()),
        **{f"threshold_{k}": value for k, value in enumerate(thresholds.tolist())},
        **{f"histogram_{k}": share for k, share in enumerate(shares)},
    }


def _counts(
    model: nn.Module, inputs: Tensor, labels: Tensor, thresholds: Float[Tensor, " k"]
) -> Float[Tensor, " k+3"]:
    """Count trusted pseudo-labels by class, images, and trusted known and correct pseudo-labels."""
    probabilities = logits_of(forward(model, inputs)).float().softmax(dim=1)
    mask = mark_trusted(probabilities, thresholds)
    given, known = probabilities.argmax(dim=1)[mask], labels[mask] != UNKNOWN
    by_class = F.one_hot(given, len(thresholds)).sum(dim=0)
    rest = torch.stack([mask.new_tensor(len(mask), dtype=torch.int64), known.sum(),
                        (given == labels[mask]).sum()])  # fmt: skip
    return torch.cat([by_class, rest]).double()
