"""Inventory of INFO: Song et al., Unveiling the Dynamics of Information Interplay, 2024."""

from functools import partial

from ncscope.lab.inventory.item import Item

_item = partial(Item, paper="INFO")
_SIZES = "the paper's scale needs CIFAR-10 and CIFAR-100 and many GPU-hours"

ITEMS: tuple[Item, ...] = (
    _item(
        label="definition 3.1",
        content="Matrix entropy of a Gram matrix with unit diagonal.",
        metrics=("entropy_features", "entropy_weights"),
        code=("ncscope.math.entropy.gram_entropy",),
    ),
    _item(
        label="definition 3.2",
        content="Matrix mutual information of two Gram matrices, through their Hadamard product.",
        metrics=("mutual_information",),
        code=("ncscope.losses.information.mutual_information",),
    ),
    _item(
        label="definition 3.3",
        content="Matrix mutual information ratio (MIR).",
        metrics=("mir", "mir_centered"),
        code=("ncscope.metrics.information.dataset_information",),
    ),
    _item(
        label="definition 3.4",
        content="Matrix entropy difference ratio (HDR).",
        metrics=("hdr", "hdr_centered"),
        code=("ncscope.metrics.information.dataset_information",),
    ),
    _item(
        label="section 4.1",
        content="(NC1) to (NC3): collapse to class means, simplex of the means, self-duality.",
        metrics=("nc1", "nc2_etf", "nc3_self_duality"),
    ),
    _item(
        label="definition 4.1",
        content="Gram matrix of representations scaled to length 1.",
        code=("ncscope.math.entropy.gram_entropy",),
    ),
    _item(
        label="theorem 4.2",
        content="At collapse the classifier and the class means have HDR 0 and a known MIR.",
        metrics=("mir_means", "hdr_means"),
        statements=("info/theorem-4.2",),
        code=("ncscope.metrics.information.collapse_mir",),
        note="printed again, with its proof, as theorem A.1",
    ),
    _item(
        label="corollary 4.3",
        content="The same values for all samples of balanced classes with mean 0 and their heads.",
        metrics=("mir_centered", "hdr_centered"),
        statements=("info/corollary-4.3", "info/corollary-4.3-relu"),
        note="printed again, with its proof, as corollary A.2",
    ),
    _item(
        label="remark after corollary 4.3",
        content="MIR and HDR lie in [0, 1], and MIR at collapse is close to 1.",
        statements=("info/remark-4.3",),
    ),
    _item(
        label="lemma 4.4",
        content="The regression error on one representation bounds the error on another.",
        statements=("info/lemma-4.4",),
        note="printed again, with its proof, as lemma B.1",
    ),
    _item(
        label="lemma 4.5",
        content="Singular values beyond the other's rank bound the regression error from below.",
        statements=("info/lemma-4.5",),
        note="printed again, with its proof, as lemma B.2",
    ),
    _item(
        label="theorem 4.6",
        content="A ratio of ranks bounds the sum of lemma 4.5 for unit columns.",
        statements=("info/theorem-4.6",),
        note="printed again, with its proof, as theorem B.3",
    ),
    _item(
        label="remark after theorem 4.6",
        content="The exponential of the entropy approximates the rank, and HDR the ratio of ranks.",
        metrics=("effective_rank",),
        statements=("info/remark-4.6",),
    ),
    _item(
        label="section 5",
        content="The entropy of batches stands for the entropy of the data set.",
        code=(
            "ncscope.metrics.batch_information.batch_estimate",
            "ncscope.api.information.batch_information",
        ),
        note="the paper's batch for measuring is not stated; 64 is its batch for training",
    ),
    _item(
        label="section 5.1",
        content="MIR rises to its theoretical upper limit and HDR falls to 0 during training.",
        statements=("info/mir-limit", "info/corollary-4.3-relu"),
        experiments=("info/training",),
    ),
    _item(
        label="figure 1",
        content="Held-out accuracy and MIR rise together while networks train.",
        experiments=("info/training",),
        note=_SIZES,
    ),
    _item(
        label="figure 2",
        content="Held-out accuracy rises while HDR falls.",
        experiments=("info/training",),
        note=_SIZES,
    ),
    _item(
        label="figure 3",
        content="Accuracy, MIR and HDR between two networks: connected on CIFAR-100 only.",
        experiments=("info/connectivity",),
        coverage="partial",
        note="the small scale has one data set; the contrast of CIFAR-10 with CIFAR-100 and its "
        "anomalies are at the paper's scale only",
    ),
    _item(
        label="figure 4",
        content="The same on CIFAR-10 at three learning rates; the lowest connects the networks.",
        experiments=("info/connectivity",),
        note="at the small scale the lowest rate trains for longer, to the same training accuracy",
    ),
    _item(
        label="figure 5",
        content="Accuracy, MIR and HDR vary little over the levels of label smoothing.",
        experiments=("info/label-smoothing",),
        code=("ncscope.losses.classification.smoothed_cross_entropy",),
        note="the paper's text states no levels; ours are 0 to 0.8",
    ),
    _item(
        label="figure 6",
        content="Features before and after pruning keep a high MIR and a low HDR.",
        experiments=("info/pruning",),
        code=("ncscope.lab.experiments.info.pruning.prune_network",),
        note="of the sparsities the paper's text states 90 % only, and not the fine-tuning; the "
        "chance baseline, untrained networks, is ours",
    ),
    _item(
        label="figure 7",
        content="In grokking MIR and HDR vary in two phases, and accuracy on new sums comes late.",
        experiments=("info/grokking",),
        note="run at the paper's scale; the paper's text states no betas and no number of steps",
    ),
    _item(
        label="section 6.1",
        content="Losses on labelled and unlabelled images and the fairness term, after FreeMatch.",
        code=(
            "ncscope.losses.pseudo_labels.consistency_loss",
            "ncscope.losses.pseudo_labels.fairness_loss",
            "ncscope.losses.pseudo_labels.class_thresholds",
        ),
        experiments=("info/semi-supervised",),
    ),
    _item(
        label="section 6.2",
        content="Loss terms: maximise mutual information, or minimise the entropy difference.",
        code=(
            "ncscope.losses.information.head_mutual_information",
            "ncscope.losses.information.head_entropy_difference",
            "ncscope.losses.modules.MutualInformationLoss",
            "ncscope.losses.modules.EntropyDifferenceLoss",
        ),
        experiments=("info/supervised", "info/semi-supervised"),
        note="the weights of the terms are not printed; ours are 0.1, and 0.01 and 1 beside",
    ),
    _item(
        label="table 1",
        content="Errors of sixteen methods with few labels on CIFAR-10, CIFAR-100 and STL-10.",
        experiments=("info/semi-supervised",),
        coverage="partial",
        note="VAT, MixMatch, ReMixMatch, Dash, MPL and OTMatch are not built",
    ),
    _item(
        label="table 2",
        content="Accuracy with all labels, with and without the loss terms.",
        experiments=("info/supervised",),
    ),
    _item(
        label="section 6.3",
        content="The fewer labels, the larger the gain from the information terms.",
        experiments=("info/semi-supervised",),
        code=(
            "ncscope.lab.experiments.info.semi_supervised.tabulate_gains",
            "ncscope.lab.experiments.info.semi_supervised.list_claims_on_settings",
        ),
    ),
)
