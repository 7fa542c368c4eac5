"""Inventory of PFC: Wang, Gai and Zhang, Progressive Feedforward Collapse, 2024."""

from functools import partial

from ncscope.lab.inventory.item import Item

_item = partial(Item, paper="PFC")

ITEMS: tuple[Item, ...] = (
    _item(
        label="figure 1",
        content="Sketch of features that move in straight lines from the data to a simplex.",
        coverage="illustration",
        note="a drawing without measurements",
    ),
    _item(
        label="definition 1",
        content="Simplex equiangular tight frame.",
        code=("ncscope.math.frames.simplex_etf",),
    ),
    _item(
        label="section II-A",
        content="(NC1) to (NC4), separability by the nearest mean, and the effective depth.",
        metrics=("nc1", "nc2_etf", "nc3_self_duality", "ncc_accuracy"),
        code=("ncscope.metrics.layerwise.effective_depth",),
    ),
    _item(
        label="equation 2",
        content="Unconstrained features model under cross-entropy.",
        code=("ncscope.lab.surrogates.ufm_cross_entropy.CrossEntropyUFM",),
    ),
    _item(
        label="section II-C",
        content="A residual network as a flow of distributions (3)-(6), and the optimal map.",
        coverage="partial",
        code=("ncscope.lab.experiments.pfc.transport.wasserstein_squared",),
        experiments=("pfc/training",),
        note="distances of trained layers are measured; the continuity equation is not solved",
    ),
    _item(
        label="proposition 1",
        content="Benamou-Brenier formula: the Wasserstein-2 distance is the least energy.",
        code=("ncscope.lab.experiments.pfc.transport.route",),
        experiments=("pfc/training",),
    ),
    _item(
        label="assumption 1",
        content="At the end of training the forward pass follows a straight line.",
        code=(
            "ncscope.metrics.layerwise.straightness",
            "ncscope.metrics.layerwise.geodesic",
            "ncscope.stats.paths.step_length",
        ),
        experiments=("pfc/training",),
    ),
    _item(
        label="equation 7",
        content="PFC1: variance within classes over variance between; printed again as (17).",
        metrics=("nc1_quotient",),
    ),
    _item(
        label="equation 8",
        content="PFC2: distance of centred class means to a simplex; printed again as (18).",
        metrics=("nc2_etf",),
    ),
    _item(
        label="equation 9",
        content="PFC3: accuracy of the nearest class mean; printed again as (19).",
        metrics=("ncc_accuracy",),
    ),
    _item(
        label="conjecture 1",
        content="Layers before the effective depth are ordered by collapse; training brings this.",
        experiments=("pfc/training", "pfc/demo"),
        code=(
            "ncscope.metrics.layerwise.order_breaks",
            "ncscope.lab.experiments.pfc.training.order_over_training",
        ),
    ),
    _item(
        label="section III-B",
        content="Lines (10) and (11) of features and of centred class means.",
        code=(
            "ncscope.metrics.layerwise.geodesic",
            "ncscope.lab.surrogates.geodesic.line_between",
        ),
    ),
    _item(
        label="theorem 1",
        content="PFC1 falls to zero along the line if start and end means agree on average.",
        statements=("pfc/theorem-1",),
        code=(
            "ncscope.lab.surrogates.geodesic.pfc1_falls_from",
            "ncscope.lab.experiments.pfc.transport.premises",
        ),
        experiments=("pfc/training",),
    ),
    _item(
        label="theorem 2",
        content="PFC2 falls to zero along the line if the transport is short.",
        statements=("pfc/theorem-2",),
        code=("ncscope.lab.surrogates.geodesic.pfc2_falls_from",),
    ),
    _item(
        label="section III-C",
        content="Weight decay bounds the transport, and equals it for symmetric inputs.",
        statements=("pfc/weight-decay",),
        code=("ncscope.lab.experiments.pfc.weight_decay.block_energy",),
        experiments=("pfc/training",),
        note="C is not printed; for blocks of one layer it is the largest squared norm of inputs",
    ),
    _item(
        label="equation 12",
        content="Multilayer unconstrained features model, with features of all layers.",
        code=("ncscope.lab.surrogates.mufm.LayeredMUFM",),
    ),
    _item(
        label="theorem 3",
        content="The layered problem (12) is equivalent to (13).",
        statements=("pfc/theorem-3",),
    ),
    _item(
        label="equation 13",
        content="Reduced model: last features held at the data; rewritten as (16).",
        code=(
            "ncscope.lab.surrogates.mufm.MUFM",
            "ncscope.lab.surrogates.mufm.ClassifierMUFM",
        ),
    ),
    _item(
        label="theorem 4",
        content="Minimisers of (13) are not collapsed, but more collapsed than the data.",
        statements=("pfc/theorem-4", "pfc/theorem-4-classifier"),
        experiments=("pfc/mufm",),
    ),
    _item(
        label="lemma 1",
        content="Along the flow (21) variance within classes falls and between classes rises.",
        statements=("pfc/lemma-1",),
    ),
    _item(
        label="table I",
        content="Architectures of the residual networks on five data sets.",
        code=("ncscope.models.networks.residual_conv.ConvResidualNet",),
        experiments=("pfc/training", "pfc/demo"),
        note="the five networks at the paper's scale; the small scale has two, one of seven blocks",
    ),
    _item(
        label="section IV-A",
        content="Relative position of a layer on the path, and settings of training.",
        code=("ncscope.metrics.layerwise.relative_position",),
        experiments=("pfc/training",),
    ),
    _item(
        label="figure 2",
        content="PFC1 to PFC3 of every layer while networks train.",
        experiments=("pfc/training", "pfc/demo"),
        note="the paper's five data sets at the paper's scale only",
    ),
    _item(
        label="figure 3",
        content="PFC1 to PFC3 of layers at the last epoch, against the straight line.",
        experiments=("pfc/training", "pfc/demo"),
        note="the paper's five data sets at the paper's scale only",
    ),
    _item(
        label="section IV-B",
        content="Distance of the model's features to the data, both of norm 1.",
        code=("ncscope.lab.surrogates.mufm.data_distance",),
        experiments=("pfc/mufm",),
    ),
    _item(
        label="figure 4",
        content="Descent on MUFM stops short of collapse, descent on UFM collapses.",
        experiments=("pfc/mufm",),
        note="as printed the regularisers do not give the figure; both scalings are run",
    ),
    _item(
        label="figure 5",
        content="As lambda grows, features move from the simplex to the data.",
        experiments=("pfc/mufm",),
    ),
)
