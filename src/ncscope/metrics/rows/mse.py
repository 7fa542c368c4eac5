"""The MSE loss and its parts."""

from ncscope.metrics.metric import Metric

_MSE = frozenset({"scatter", "head"})
_BEYOND = (
    "the value is beyond the range of float64, or there is weight decay and features are beyond "
    "1e-141..1e141"
)

ROWS = (
    Metric(
        "mse_loss",
        "mse",
        "MSE loss",
        r"\tfrac12\operatorname{Ave}\lVert\tilde W\tilde h-y\rVert^2+"
        r"\tfrac\lambda2\lVert\tilde W\rVert_F^2",
        "MSE (1)",
        lambda s: s.mse.loss,
        _MSE,
        zero="the logits are the one-hot labels",
        log_scale=True,
        undefined=_BEYOND,
    ),
    Metric(
        "mse_nc1",
        "mse",
        "MSE loss: NC1 part",
        r"\tfrac12\operatorname{tr}\tilde W_{LS}[\tilde\Sigma_W+\lambda I]\tilde W_{LS}^\top",
        "MSE theorem 2",
        lambda s: s.mse.nc1,
        _MSE,
        zero="the least-squares classifier loses nothing to variability",
        log_scale=True,
        undefined=_BEYOND,
    ),
    Metric(
        "mse_nc23",
        "mse",
        "MSE loss: NC2/3 part",
        r"\tfrac12\sum_c\pi_c\lVert\tilde W_{LS}\tilde\mu_c-e_c\rVert^2",
        "MSE theorem 2",
        lambda s: s.mse.nc23,
        _MSE,
        zero="the least-squares classifier fits the class means",
        log_scale=True,
        undefined=_BEYOND,
    ),
    Metric(
        "mse_off_path",
        "mse",
        "MSE loss: off the central path",
        r"\tfrac12\operatorname{tr}(\tilde W-\tilde W_{LS})(\tilde\Sigma_T+"
        r"\tilde\mu_G\tilde\mu_G^\top+\lambda I)(\tilde W-\tilde W_{LS})^\top",
        "MSE theorem 1",
        lambda s: s.mse.off_path,
        _MSE,
        zero="the classifier is the least-squares one",
        log_scale=True,
        undefined=_BEYOND,
    ),
)
