"""Inventory of MSE: Han, Papyan and Donoho, Neural Collapse Under MSE Loss, 2022."""

from functools import partial

from ncscope.lab.inventory.item import Item

_item = partial(Item, paper="MSE")
_SIZES = "the paper's 15 networks on five data sets at the paper's scale only"

ITEMS: tuple[Item, ...] = (
    _item(
        label="figure 1",
        content="Portrait of neural collapse: features, class means and classifiers on a simplex.",
        coverage="illustration",
        note="a drawing without measurements",
    ),
    _item(
        label="equation 1",
        content="Within-class and between-class covariance of the features.",
        code=("ncscope.stats.statistics.ClassStatistics",),
    ),
    _item(
        label="section 1.1",
        content="(NC1) to (NC4): variability, simplex, self-duality, nearest class mean.",
        metrics=("nc1", "nc3_self_duality", "nc4_disagreement", "nc2_etf"),
    ),
    _item(
        label="equation 2",
        content="MSE loss with weight decay, with features extended by a one as in (3).",
        metrics=("mse_loss",),
        code=("ncscope.losses.classification.squared_error",),
    ),
    _item(
        label="section 1.2",
        content="Networks trained under MSE are about as accurate as those under cross-entropy.",
        experiments=("mse/loss-comparison",),
        note=_SIZES,
    ),
    _item(
        label="proposition 1",
        content="Least-squares classifier of fixed features, with weight decay.",
        statements=("mse/proposition-1",),
    ),
    _item(
        label="theorem 1",
        content="The loss is that of the least-squares classifier plus a part off the path.",
        metrics=("mse_off_path",),
        statements=("mse/theorem-1", "mse/footnote-7"),
        code=("ncscope.metrics.mse.mse_parts",),
        note="the proof is appendix B",
    ),
    _item(
        label="theorem 2",
        content="The least-squares part is an NC1 part plus an NC2/3 part.",
        metrics=("mse_nc1", "mse_nc23"),
        statements=("mse/theorem-2",),
        code=("ncscope.metrics.mse.mse_parts",),
        note="the proof is appendix C",
    ),
    _item(
        label="section 2",
        content="Less variability within classes always reduces the NC1 part.",
        statements=("mse/section-2-noise",),
    ),
    _item(
        label="figure 2",
        content="Parts of the loss while networks train: the part off the path is negligible.",
        experiments=("mse/decomposition",),
        code=("ncscope.lab.experiments.mse.decomposition.measure_training_mode",),
        note=f"measured on evaluation-mode and on training-mode features; {_SIZES}",
    ),
    _item(
        label="equation 4",
        content="Central path: features together with their least-squares classifier.",
        code=("ncscope.lab.surrogates.dynamics.central_path.least_squares",),
    ),
    _item(
        label="equation 5",
        content="Continually renormalised gradient flow on the central path.",
        code=("ncscope.lab.surrogates.dynamics.flows.flow",),
        experiments=("mse/central-path",),
    ),
    _item(
        label="theorem 3",
        content="The flow leads features of global mean zero to neural collapse.",
        statements=("mse/theorem-3",),
        experiments=("mse/central-path",),
    ),
    _item(
        label="equation 6",
        content="Least-squares classifier and bias of centred features; assumption (A2).",
        statements=("mse/equation-6",),
    ),
    _item(
        label="definition 1",
        content="Central path of features with global mean zero.",
        code=("ncscope.lab.surrogates.dynamics.central_path.least_squares",),
    ),
    _item(
        label="equation 7",
        content="Predictions on the central path are invariant under symmetric maps.",
        statements=("mse/equation-7",),
    ),
    _item(
        label="section 3.1",
        content="Invertible maps keep predictions and loss, so features may be renormalised.",
        statements=("mse/invariance",),
        code=("ncscope.lab.surrogates.dynamics.snr.renormalised",),
    ),
    _item(
        label="equation 8",
        content="Signal-to-noise matrix: the class means of renormalised features.",
        statements=("mse/equation-8",),
        code=("ncscope.lab.surrogates.dynamics.snr.snr_matrix",),
    ),
    _item(
        label="definition 2",
        content="Singular value decomposition of the signal-to-noise matrix.",
        statements=("mse/definition-2",),
        code=("ncscope.metrics.discriminants.snr_singular_values",),
    ),
    _item(
        label="proposition 2",
        content="Closed-form law (9) of the singular values.",
        statements=("mse/proposition-2",),
        code=(
            "ncscope.lab.surrogates.dynamics.laws.projected_law",
            "ncscope.lab.surrogates.dynamics.laws.renormalised_law",
        ),
        experiments=("mse/central-path",),
    ),
    _item(
        label="corollary 1",
        content="The singular values grow as the fourth root of time and become equal.",
        statements=("mse/corollary-1",),
        experiments=("mse/central-path",),
    ),
    _item(
        label="corollary 2",
        content="Limits (10) and (11) of signal-to-noise matrix and features: neural collapse.",
        statements=("mse/corollary-2",),
        experiments=("mse/central-path",),
    ),
    _item(
        label="appendix A",
        content="Data sets, depths of the networks (table of A.2) and optimisation.",
        code=(
            "ncscope.lab.experiments.mse.networks.paper_runs",
            "ncscope.lab.experiments.mse.learning_rates.list_rates",
        ),
        note="the sweep over 25 learning rates is an option; without it all networks have one rate",
    ),
    _item(
        label="table 1",
        content="Held-out accuracy at zero training error and at the end.",
        experiments=("mse/collapse",),
        code=("ncscope.lab.experiments.mse.collapse.ACCURACIES",),
        note=_SIZES,
    ),
    _item(
        label="figure 3",
        content="Norms of class means and classifiers become equal.",
        metrics=("nc2_equinorm_means", "nc2_equinorm_weights"),
        experiments=("mse/collapse",),
        note=_SIZES,
    ),
    _item(
        label="figure 4",
        content="Angles between class means and between classifiers become equal.",
        metrics=("nc2_equiangular_means", "nc2_equiangular_weights"),
        experiments=("mse/collapse",),
        note=_SIZES,
    ),
    _item(
        label="figure 5",
        content="Angles become as large as all pairs can have.",
        metrics=("nc2_maxangle_means", "nc2_maxangle_weights"),
        experiments=("mse/collapse",),
        note=_SIZES,
    ),
    _item(
        label="figure 6",
        content="Classifier and class means become self-dual.",
        metrics=("nc3_self_duality",),
        experiments=("mse/collapse",),
        note=_SIZES,
    ),
    _item(
        label="figure 7",
        content="Variability within classes collapses.",
        metrics=("nc1",),
        experiments=("mse/collapse",),
        note=_SIZES,
    ),
    _item(
        label="figure 8",
        content="Decisions become those of the nearest class mean.",
        metrics=("nc4_disagreement",),
        experiments=("mse/collapse",),
        note=_SIZES,
    ),
    _item(
        label="figure 9",
        content="Networks become more robust after zero training error.",
        experiments=("mse/robustness",),
        code=("ncscope.lab.experiments.mse.margins.deepfool_robustness",),
        note=_SIZES,
    ),
    _item(
        label="figure 10",
        content="Variability collapses faster under MSE than under cross-entropy.",
        experiments=("mse/loss-comparison",),
        note=_SIZES,
    ),
    _item(
        label="figure 11",
        content="Networks are more robust under MSE than under cross-entropy.",
        experiments=("mse/robustness",),
        note=_SIZES,
    ),
    _item(
        label="figure 12",
        content="Variability on test images collapses slowly, and follows the sets' difficulty.",
        experiments=("mse/loss-comparison",),
        note=f"difficulty is compared on one network at the small scale; {_SIZES}",
    ),
    _item(
        label="appendix A.7",
        content="Exceptions: ResNet and DenseNet on STL-10 collapse slowly or inconsistently.",
        experiments=("mse/collapse",),
        code=("ncscope.lab.experiments.mse.networks.EXCEPTIONS",),
        note="at the paper's scale only",
    ),
    _item(
        label="appendix C.1",
        content="Parts of the loss without decay, in centred features: (16) to (18).",
        statements=("mse/equation-18",),
    ),
    _item(
        label="appendix C.2",
        content="When the NC1 part and the NC2/3 part are zero.",
        statements=("mse/appendix-c.2-nc1", "mse/appendix-c.2-nc23"),
    ),
    _item(
        label="figure 13",
        content="Fibres of features with equal predictions over the renormalised features.",
        coverage="illustration",
        note="a drawing without measurements",
    ),
    _item(
        label="appendix D.1",
        content="Renormalised representative of features; gradient descent with renormalisation.",
        statements=("mse/appendix-d.1", "mse/algorithm"),
        code=("ncscope.lab.surrogates.dynamics.flows.renormalised_descent",),
        experiments=("mse/central-path",),
    ),
    _item(
        label="definition 3",
        content="Transformation into aligned signal-to-noise coordinates.",
        code=("ncscope.lab.surrogates.dynamics.snr.aligned",),
    ),
    _item(
        label="definition 4",
        content="Aligned signal-to-noise matrix.",
        code=("ncscope.lab.surrogates.dynamics.snr.aligned",),
    ),
    _item(
        label="observation 1",
        content="The aligned matrix has unit vectors as singular vectors.",
        statements=("mse/observation-3",),
    ),
    _item(
        label="lemma 1",
        content="The singular values determine the loss and its parts on the central path.",
        statements=("mse/lemma-1",),
        code=("ncscope.lab.surrogates.dynamics.snr.spectral_loss",),
    ),
    _item(
        label="definition 5",
        content="Features in aligned signal-to-noise coordinates, and the class-centring matrix.",
        statements=("mse/definition-5",),
        code=("ncscope.lab.surrogates.dynamics.snr.aligned",),
    ),
    _item(
        label="observation 2",
        content="Aligned features have within-class covariance I.",
        statements=("mse/observation-2",),
    ),
    _item(
        label="observation 3",
        content="Aligned features give the aligned matrix and its differential.",
        statements=("mse/observation-3",),
    ),
    _item(
        label="definition 6",
        content="Manifold of normalised features.",
        code=("ncscope.lab.surrogates.dynamics.manifold.constraint_derivative",),
    ),
    _item(
        label="proposition 3",
        content="Tangent space of the manifold.",
        statements=("mse/proposition-3",),
    ),
    _item(
        label="proposition 4",
        content="Projection onto the tangent space.",
        statements=("mse/proposition-4", "mse/proposition-4-adjoint"),
        code=(
            "ncscope.lab.surrogates.dynamics.manifold.oblique_projection",
            "ncscope.lab.surrogates.dynamics.manifold.orthogonal_projection",
        ),
    ),
    _item(
        label="lemma 2",
        content="A renormalised step is a projected step up to second order.",
        statements=("mse/lemma-2",),
    ),
    _item(
        label="lemma 3",
        content="Differential of the singular values in aligned features.",
        statements=("mse/lemma-3",),
    ),
    _item(
        label="lemma 4",
        content="Flow of the rows of aligned features.",
        statements=("mse/lemma-4",),
    ),
    _item(
        label="lemma 5",
        content="Rate (27) of the singular values under the flow.",
        statements=("mse/lemma-5",),
    ),
    _item(
        label="lemma 6",
        content="The flow keeps the singular vectors.",
        statements=("mse/lemma-6",),
    ),
    _item(
        label="lemma 7",
        content="Singular values and null space of a simplex.",
        statements=("mse/lemma-7",),
        code=("ncscope.math.frames.simplex_etf",),
    ),
    _item(
        label="appendix D.6",
        content="Derivation of (NC1) to (NC4) from the limits of the singular values.",
        statements=("mse/trace", "mse/appendix-d.6"),
    ),
)
