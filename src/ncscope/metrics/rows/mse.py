"""The MSE loss and its parts."""

from ncscope.metrics.metric import Metric

_MSE = frozenset({"scatter", "head", "outputs"})
_BEYOND = (
    "the value is beyond the range of float64, or there is weight decay and features are beyond "
    "1e-141..1e141"
)

ROWS = (
    Metric(
        key="mse_loss",
        group="mse",
        title="MSE loss",
        meaning="Squared error of the logits against one-hot labels.",
        formula=(
            r"\tfrac12\operatorname{Ave}\lVert\tilde W\tilde h-y\rVert^2+"
            r"\tfrac\lambda2\lVert\tilde W\rVert_F^2"
        ),
        source="MSE (1)",
        compute=lambda s: s.mse.loss,
        needs=_MSE,
        zero="the logits are the one-hot labels",
        log_scale=True,
        undefined=_BEYOND,
    ),
    Metric(
        key="mse_nc1",
        group="mse",
        title="MSE loss: NC1 part",
        meaning=(
            "Part of the squared error that variation within classes causes under the best "
            "classifier."
        ),
        formula=(
            r"\tfrac12\operatorname{tr}\tilde W_{LS}[\tilde\Sigma_W+\lambda I]\tilde W_{LS}^\top"
        ),
        source="MSE theorem 2",
        compute=lambda s: s.mse.nc1,
        needs=_MSE,
        zero="the least-squares classifier loses nothing to variability",
        log_scale=True,
        undefined=_BEYOND,
    ),
    Metric(
        key="mse_nc23",
        group="mse",
        title="MSE loss: NC2/3 part",
        meaning="Part of the squared error that the class means cause under the best classifier.",
        formula=r"\tfrac12\sum_c\pi_c\lVert\tilde W_{LS}\tilde\mu_c-e_c\rVert^2",
        source="MSE theorem 2",
        compute=lambda s: s.mse.nc23,
        needs=_MSE,
        zero="the least-squares classifier fits the class means",
        log_scale=True,
        undefined=_BEYOND,
    ),
    Metric(
        key="mse_off_path",
        group="mse",
        title="MSE loss: off the central path",
        meaning=(
            "Part of the squared error that comes from a classifier other than the best for "
            "these features."
        ),
        formula=(
            r"\tfrac12\operatorname{tr}(\tilde W-\tilde W_{LS})(\tilde\Sigma_T+"
            r"\tilde\mu_G\tilde\mu_G^\top+\lambda I)(\tilde W-\tilde W_{LS})^\top"
        ),
        source="MSE theorem 1",
        compute=lambda s: s.mse.off_path,
        needs=_MSE,
        zero="the classifier is the least-squares one",
        log_scale=True,
        undefined=_BEYOND,
    ),
)
