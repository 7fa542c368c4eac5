"""Inventory of VCI: Xu and Liu, Quantifying the Variability Collapse of Neural Networks, 2023."""

from functools import partial

from ncscope.lab.inventory.item import Item

_item = partial(Item, paper="VCI")
_IMAGENET = "needs ImageNet: the paper's networks at the paper's scale only"

ITEMS: tuple[Item, ...] = (
    _item(
        label="equation 1",
        content="Within-class covariance of the features.",
        code=("ncscope.stats.statistics.ClassStatistics",),
    ),
    _item(
        label="equation 2",
        content="Between-class covariance of the class means.",
        code=("ncscope.stats.statistics.ClassStatistics",),
    ),
    _item(
        label="equation 3",
        content="Overall covariance, the sum of the two.",
        statements=("vci/equation-7", "vci/equation-7-imbalanced"),
        code=("ncscope.stats.statistics.ClassStatistics",),
        note="the sum is proved as equation 7",
    ),
    _item(
        label="section 3.2",
        content="Earlier metrics: fuzziness, squared distance (4), cosine distance, separation.",
        metrics=("fuzziness", "nc1_quotient", "cosine_within", "class_separation"),
    ),
    _item(
        label="equation 4",
        content="Squared distance: variance within classes over variance between classes.",
        metrics=("nc1_quotient",),
    ),
    _item(
        label="proposition 4.1",
        content="The least loss, regularised in W and b, allows any variance within classes.",
        statements=("vci/proposition-4.1",),
    ),
    _item(
        label="figure 1",
        content="While ResNet-50 trains, variance on the signal space falls and off it rises.",
        metrics=("within_in_signal", "within_off_signal"),
        statements=("vci/figure-1",),
        experiments=("vci/training", "vci/imagenet"),
        note=_IMAGENET,
    ),
    _item(
        label="observation 4.2",
        content="Fuzziness is invariant under maps that keep the signal space and its complement.",
        statements=("vci/observation-4.2",),
    ),
    _item(
        label="observation 4.3",
        content="Squared distance is invariant under isotropic scaling and orthogonal maps only.",
        statements=("vci/observation-4.3",),
    ),
    _item(
        label="observation 4.4",
        content="Cosine distance is invariant under scaling of each feature and orthogonal maps.",
        statements=("vci/observation-4.4",),
    ),
    _item(
        label="observation 4.5",
        content="The least probing loss is invariant under invertible linear maps.",
        statements=("vci/observation-4.5",),
    ),
    _item(
        label="figure 2",
        content="The spectrum of the overall covariance is larger and flatter than that between.",
        code=("ncscope.metrics.spectrum.covariance_between",),
        experiments=("vci/training", "vci/imagenet"),
        note=f"{_IMAGENET}; a table and no claim, as it holds of untrained networks too",
    ),
    _item(
        label="section 4.3",
        content="Fuzziness explodes with the cut of its pseudo-inverse; VCI is stable.",
        statements=("vci/remark-4.3",),
        metrics=("fuzziness", "vci"),
        experiments=("vci/training",),
        note="a table and no claim, as it holds of untrained networks too",
    ),
    _item(
        label="figure 3",
        content="Four metrics while ResNet-18 trains on CIFAR-10 under three schedules.",
        metrics=("fuzziness", "nc1_quotient", "cosine_within", "vci"),
        experiments=("vci/training",),
        note="the paper's scale needs CIFAR-10",
    ),
    _item(
        label="figure 4",
        content="Four metrics while ResNet-50 trains on ImageNet under two losses.",
        metrics=("fuzziness", "nc1_quotient", "cosine_within", "vci"),
        experiments=("vci/imagenet",),
        note=_IMAGENET,
    ),
    _item(
        label="theorem 5.1",
        content="The least probing loss in closed form, through Tr[pinv(Sigma_T) Sigma_B].",
        metrics=("linear_probe_mse",),
        statements=(
            "vci/theorem-5.1",
            "vci/theorem-5.1-imbalanced",
            "vci/theorem-5.1-minimiser",
            "vci/theorem-5.1-proof",
            "vci/remark-5.1",
        ),
    ),
    _item(
        label="theorem 5.2",
        content="That trace is at most the rank of Sigma_B, with equality at full collapse.",
        statements=(
            "vci/theorem-5.2",
            "vci/theorem-5.2-equality",
            "vci/theorem-5.2-proof",
            "vci/remark-5.2",
        ),
    ),
    _item(
        label="definition 5.3",
        content="Variability collapse index (VCI).",
        metrics=("vci",),
        statements=("vci/definition-5.3", "vci/definition-5.3-rank"),
    ),
    _item(
        label="corollary 5.4",
        content="VCI is invariant under invertible linear maps.",
        statements=("vci/corollary-5.4",),
    ),
    _item(
        label="figure 5",
        content="Four metrics while two vision transformers train on ImageNet.",
        coverage="partial",
        experiments=("vci/imagenet",),
        code=("ncscope.models.networks.vision_transformer.deit",),
        note=f"{_IMAGENET}; of DeiT's training the threefold repetition of images is left out; at "
        "the small scale there are fewer classes than features, unlike in the paper",
    ),
    _item(
        label="figure 6",
        content="VCI collapses on training images and on held-out images.",
        experiments=("vci/training", "vci/imagenet"),
        note=_IMAGENET,
    ),
    _item(
        label="section 6.2",
        content="The share of variance off the signal space falls with features per class.",
        statements=("vci/remark-6.2",),
        experiments=("vci/training", "vci/imagenet"),
    ),
    _item(
        label="equation 6",
        content="Mean log odds gain: log odds on downstream sets minus log odds of pretraining.",
        code=("ncscope.transfer.correlations.mean_log_odds_gain",),
        experiments=("vci/transfer",),
    ),
    _item(
        label="section 6.3",
        content="Pretraining with a temperature or a cosine penalty, then linear probes.",
        code=(
            "ncscope.losses.classification.temperature_cross_entropy",
            "ncscope.losses.regularisers.within_class_cosine",
            "ncscope.transfer.probes.selection.choose_probe",
        ),
        experiments=("vci/transfer",),
    ),
    _item(
        label="figure 7",
        content="Only VCI correlates with transfer in both groups of networks.",
        experiments=("vci/transfer",),
        note=_IMAGENET,
    ),
    _item(
        label="lemma A.1",
        content="Inverse of a matrix of four blocks.",
        statements=("vci/lemma-A.1",),
    ),
    _item(
        label="lemma A.2",
        content="The Schur complement of a positive definite matrix is positive definite.",
        statements=("vci/lemma-A.2",),
    ),
    _item(
        label="figure 8",
        content="Earlier metrics on training images and on held-out images.",
        experiments=("vci/training", "vci/imagenet"),
        note=_IMAGENET,
    ),
    _item(
        label="table 1",
        content="Accuracies of linear probes on ten downstream sets.",
        experiments=("vci/transfer",),
        code=("ncscope.lab.experiments.vci.published.DOWNSTREAM",),
        note=f"the printed values are in the code; a run's table shows ours alone; {_IMAGENET}",
    ),
    _item(
        label="table 2",
        content="Four metrics, accuracy and log odds gain of eleven pretrained networks.",
        experiments=("vci/transfer",),
        code=("ncscope.lab.experiments.vci.published.PublishedCheckpoint",),
        note=f"the printed values are in the code; a run's table shows ours alone; {_IMAGENET}",
    ),
)
