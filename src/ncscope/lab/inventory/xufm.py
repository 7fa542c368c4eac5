"""Inventory of XUFM: Tirer and Bruna, Extended Unconstrained Features Model, 2022."""

from functools import partial

from ncscope.lab.inventory.item import Item

_item = partial(Item, paper="XUFM")
_SIZES = "the paper's text states no sizes; ours are stated on the recipe"

ITEMS: tuple[Item, ...] = (
    _item(
        label="equation 1",
        content="Regularised empirical risk of a network.",
        code=("ncscope.lab.training.objectives.objective",),
    ),
    _item(
        label="definition 2.1",
        content="Within-class collapse: features of a class are one point.",
        metrics=("nc1",),
    ),
    _item(
        label="definition 2.2",
        content="Simplex equiangular tight frame.",
        code=("ncscope.math.frames.simplex_etf",),
    ),
    _item(
        label="section 2",
        content="Without regularisation descent ends at minimisers that are not collapsed.",
        experiments=("xufm/ufm",),
        code=("ncscope.lab.surrogates.plain.PlainUFM",),
    ),
    _item(
        label="equation 3",
        content="Unconstrained features model under the regularised MSE loss, with a bias.",
        code=("ncscope.lab.surrogates.ufm.UFM",),
    ),
    _item(
        label="section 3",
        content="Remark: all critical points but global minima are strict saddles.",
        statements=("xufm/remark-3",),
    ),
    _item(
        label="theorem 3.1",
        content="Without a bias every minimiser is collapsed on an orthogonal frame: (5)-(13).",
        metrics=("nc2_of",),
        statements=("xufm/theorem-3.1",),
        code=("ncscope.lab.surrogates.ufm.collapse_threshold",),
        experiments=("xufm/ufm",),
        note="the alternative proof of A.1 is not a statement of its own",
    ),
    _item(
        label="theorem 3.2",
        content="With a free bias every minimiser is collapsed on a simplex: (14)-(22).",
        metrics=("nc2_etf",),
        statements=("xufm/theorem-3.2",),
        experiments=("xufm/ufm",),
    ),
    _item(
        label="remark on the regularised bias",
        content="Between the two the centred means are a simplex and the means are neither frame.",
        statements=("xufm/remark-3.2",),
        experiments=("xufm/ufm",),
    ),
    _item(
        label="equation 23",
        content="Extended model: a second layer of weights.",
        code=("ncscope.lab.surrogates.extended.ExtendedUFM",),
    ),
    _item(
        label="section 4.1",
        content="Remark: (23) has non-strict saddles. Discussion: depth in networks and model.",
        experiments=("xufm/extended", "xufm/network"),
        code=("ncscope.lab.surrogates.critical_points.kind",),
    ),
    _item(
        label="theorem 4.1",
        content="Minimisers of (23) are collapsed on orthogonal frames at both levels.",
        statements=("xufm/theorem-4.1",),
        code=("ncscope.lab.surrogates.extended.best_product",),
        experiments=("xufm/extended",),
    ),
    _item(
        label="remark after theorem 4.1",
        content="Under cross-entropy the extended model collapses to a simplex.",
        statements=("xufm/remark-4.1",),
    ),
    _item(
        label="equation 24",
        content="Extended model with ReLU between the layers.",
        code=("ncscope.lab.surrogates.extended.ExtendedUFM",),
    ),
    _item(
        label="theorem 4.2",
        content="With ReLU the deep features collapse to an orthogonal frame.",
        statements=("xufm/theorem-4.2", "xufm/conjecture-4.2"),
        experiments=("xufm/extended",),
    ),
    _item(
        label="theorem 5.1",
        content="With fixed perturbed features the best classifier is attenuated: (25), (80)-(88).",
        statements=("xufm/theorem-5.1",),
        code=(
            "ncscope.lab.surrogates.perturbed.PerturbedUFM",
            "ncscope.lab.surrogates.perturbed.attenuation",
        ),
        experiments=("xufm/extended",),
    ),
    _item(
        label="equation 26",
        content="NC1 of features; printed again as (73).",
        metrics=("nc1",),
    ),
    _item(
        label="equation 27",
        content="NC2: distances of the means to a simplex and to an orthogonal frame.",
        metrics=("nc2_etf", "nc2_of"),
    ),
    _item(
        label="equation 28",
        content="NC3: alignment of the weights with the uncentred means.",
        metrics=("nc3_alignment",),
    ),
    _item(
        label="figure 1",
        content="Descent on the plain model without a bias, theorem 3.1.",
        experiments=("xufm/ufm",),
        note=_SIZES,
    ),
    _item(
        label="figure 2",
        content="Descent on the plain model with a bias, theorem 3.2.",
        experiments=("xufm/ufm",),
        note=_SIZES,
    ),
    _item(
        label="figure 3",
        content="Descent on the linear extended model, theorem 4.1: both levels collapse.",
        experiments=("xufm/extended",),
        note=_SIZES,
    ),
    _item(
        label="figure 4",
        content="Descent on the extended model with ReLU, theorem 4.2: the levels differ.",
        experiments=("xufm/extended",),
        note=_SIZES,
    ),
    _item(
        label="figure 5",
        content="ResNet-18 on MNIST, block by block, under MSE and under cross-entropy.",
        experiments=("xufm/network",),
        note="MNIST at the paper's scale only; digits at the small scale",
    ),
    _item(
        label="section 6",
        content="ReLU tells the levels apart, in rate and structure; networks resemble that model.",
        experiments=("xufm/network", "xufm/extended"),
    ),
    _item(
        label="section 7",
        content="ReLU on the plain model defeats descent from a random start.",
        experiments=("xufm/ufm",),
        code=("ncscope.lab.surrogates.plain.PlainUFM",),
    ),
    _item(
        label="lemma A.1",
        content="Least value of the reduced objective of theorem 3.1.",
        statements=("xufm/lemma-a.1",),
    ),
    _item(
        label="lemma B.1",
        content="Least value of the reduced objective of theorem 3.2.",
        statements=("xufm/lemma-b.1",),
    ),
    _item(
        label="lemma C.1",
        content="The nuclear norm is the least sum of squared factors (58).",
        experiments=("xufm/extended",),
        code=("ncscope.lab.surrogates.factorisation.factorisation_cost",),
    ),
    _item(
        label="appendix D",
        content="NC1 of both levels of the linear model agrees at a random start: (74).",
        statements=("xufm/appendix-d",),
    ),
    _item(
        label="appendix E",
        content="Conjecture: the nuclear norms with and without ReLU agree at every minimiser.",
        statements=("xufm/conjecture-4.2",),
        experiments=("xufm/extended",),
    ),
    _item(
        label="appendix F.1",
        content="The attenuation of theorem 5.1, in the extended model.",
        statements=("xufm/remark-f.1",),
    ),
    _item(
        label="figure 6",
        content="As figure 1, with other sizes.",
        experiments=("xufm/ufm",),
        note=_SIZES,
    ),
    _item(
        label="figure 7",
        content="As figure 2, with other sizes.",
        experiments=("xufm/ufm",),
        note=_SIZES,
    ),
    _item(
        label="figure 8",
        content="As figure 3, with other sizes.",
        experiments=("xufm/extended",),
        note=_SIZES,
    ),
    _item(
        label="figure 9",
        content="As figure 4, with other sizes.",
        experiments=("xufm/extended",),
        note=_SIZES,
    ),
    _item(
        label="figure 10",
        content="As figure 5, on CIFAR-10 under MSE.",
        experiments=("xufm/network",),
        note="CIFAR-10 at the paper's scale only",
    ),
)
