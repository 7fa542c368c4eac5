"""Arrays of unusual kinds: read to their precision, or refused in one line; nothing is lost."""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import ncscope
from ncscope import ClassMoments, InputError
from ncscope.integrations.torchmetrics import NeuralCollapse

pytestmark = [
    pytest.mark.usefixtures("unchecked_signatures"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of (Masked|nested)"),
    pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:the matrix subclass"),
]

Kind = Callable[[np.ndarray], Any]
N, K, D = 12, 3, 4
RNG = np.random.default_rng(0)
# powers of two: every type of number has them
PLAIN: Mapping[str, np.ndarray] = {
    "features": 2.0 ** RNG.integers(0, 4, size=(N, D)),
    "labels": np.arange(N) % K,
    "weight": 2.0 ** RNG.integers(0, 4, size=(K, D)),
    "bias": 2.0 ** RNG.integers(0, 3, size=K),
}
NAMES = tuple(PLAIN)
# they see every number of the four arrays
GROUPS = ("nc1", "nc3", "mse")


class DataFrame:
    """What pandas, polars and others offer."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def to_numpy(self) -> np.ndarray:
        return self.values


class Arraylike:
    """What JAX, TensorFlow, xarray and others offer."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.values


def tensor(values: np.ndarray) -> Tensor:
    return torch.tensor(values)


def quantise(values: np.ndarray) -> Tensor:
    return torch.quantize_per_tensor(tensor(values).float(), 0.5, 3, torch.qint8)


def quantise_by_row(values: np.ndarray) -> Tensor:
    scale, zero = torch.full((len(values),), 0.5), torch.arange(len(values))
    return torch.quantize_per_channel(tensor(values).float(), scale, zero, 0, torch.qint8)


def negative_view(values: np.ndarray) -> Tensor:
    imaginary = torch.complex(torch.zeros(values.shape).double(), -tensor(values).double())
    view = imaginary.conj().imag
    assert view.is_neg()
    return view


def mask_none(values: np.ndarray) -> np.ma.MaskedArray:
    return np.ma.array(values, mask=np.zeros(values.shape, dtype=bool))


def mask_one(values: np.ndarray) -> np.ma.MaskedArray:
    mask = np.zeros(values.shape, dtype=bool)
    mask.flat[1] = True
    return np.ma.array(values, mask=mask)


def of_type(dtype: str) -> Kind:
    return lambda values: values.astype(dtype)


def of_torch_type(dtype: torch.dtype) -> Kind:
    return lambda values: tensor(values).float().to(dtype)


FLOAT8 = {
    name: dtype
    for name, dtype in vars(torch).items()
    if name.startswith("float8_") and isinstance(dtype, torch.dtype)
}
READ: dict[str, Kind] = {
    **{name: of_torch_type(dtype) for name, dtype in FLOAT8.items()},
    **{name: of_type(name) for name in ("uint16", "uint32", "uint64", "longdouble", ">f8")},
    "uint16 tensor": lambda values: tensor(values.astype("uint16")),
    "uint64 tensor": lambda values: tensor(values.astype("uint64")),
    "quantised": quantise,
    "quantised by row": quantise_by_row,
    "gradient": lambda values: torch.tensor(values.astype(float), requires_grad=True),
    "parameter": lambda values: torch.nn.Parameter(tensor(values.astype(float))),
    "negative view": negative_view,
    "masked array, nothing masked": mask_none,
    "masked arrays, nothing masked": lambda values: [*mask_none(values)],
    "list of tensors": lambda values: [*tensor(values)],
    "list of tensors with gradients": lambda values: [
        *tensor(values.astype(float)).requires_grad_()
    ],
    "list of bfloat16": lambda values: [*tensor(values).bfloat16()],
    "list of arrays": lambda values: [*values],
    "tuple": lambda values: tuple(values.tolist()),
    "matrix": lambda values: np.asmatrix(values) if values.ndim == 2 else values,
    "memory view": memoryview,
    "objects": of_type("object"),
    "data frame": DataFrame,
    "array-like": Arraylike,
}
if hasattr(torch.Tensor, "rename"):  # before torch 2.15
    READ["named"] = lambda values: tensor(values).rename(*"nd"[: values.ndim])

UNEQUAL = "{} with rows of one length, found length 2 at row 0|2 batches of labels, of [35] samples"
REFUSED: dict[str, tuple[Kind, str]] = {
    "COO": (lambda values: tensor(values).to_sparse(), r"pass {}\.to_dense\(\)"),
    "SciPy CSR": (scipy.sparse.csr_matrix, r"sparse csr_matrix; pass {}\.toarray\(\)"),
    "SciPy COO": (scipy.sparse.coo_array, r"sparse coo_array; pass {}\.toarray\(\)"),
    "MKL-DNN": (lambda values: tensor(values).float().to_mkldnn(), r"pass {}\.to_dense\(\)"),
    "meta": (lambda values: tensor(values).to("meta"), "{} with values"),
    "fake": (lambda values: FakeTensorMode().from_tensor(tensor(values)), "{} with values"),
    "masked tensor": (
        lambda values: torch.masked.masked_tensor(tensor(values), tensor(values) >= 0),
        "{} without masked entries",
    ),
    "masked array": (mask_one, r"{} without masked entries, found 1 of \d+ masked"),
    "list of masked arrays": (
        lambda values: [mask_one(values), mask_one(values)],
        r"{} without masked entries, found 1 of \d+ masked",
    ),
    "nested": (
        lambda values: torch.nested.nested_tensor([*tensor(values[:, None])]),
        "found a nested tensor",
    ),
    "nested, jagged": (
        lambda values: torch.nested.nested_tensor([*tensor(values[:, None])], layout=torch.jagged),
        "found a nested tensor",
    ),
    "complex": (lambda values: values + 1j, "found dtype torch.complex128"),
    "complex tensor": (lambda values: tensor(values) + 1j, r"found dtype torch\.complex\d+"),
    "complex of long doubles": (of_type("clongdouble"), "numeric array, found dtype c"),
    "objects": (
        lambda values: np.full(values.shape, object()),
        "{} as a numeric array, found dtype object",
    ),
    "a missing object": (
        lambda values: np.where(np.arange(len(values)) == 1, None, values.T).T,
        r"(label for each sample|{} without missing values), found \d+ .*missing.* row [01]",
    ),
    "words": (of_type("str"), "{} as a numeric array, found dtype <U"),
    "dates": (
        lambda values: values.astype("int64").astype("datetime64[s]"),
        "{} as a numeric array, found dtype datetime64",
    ),
    "structured": (
        lambda values: np.zeros(len(values), dtype=[("a", float), ("b", float)]),
        "{} as a numeric array, found dtype",
    ),
    "four bits": (
        lambda values: torch.zeros(values.shape, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        r"numeric array, found dtype torch\.float4",
    ),
    "lists of unequal length": (lambda _: [[1.0, 2.0], [1.0]], UNEQUAL),
    "tensors of unequal length": (lambda _: [torch.ones(2), torch.ones(3)], UNEQUAL),
    "huge integers": (lambda _: [10**30] * 3, "{} as a numeric array"),
    "None in a list": (
        lambda values: [None] * len(values),
        "{} as a numeric array|label for each sample, found 12 of 12 missing",
    ),
    "mapping": (lambda values: {"values": values}, "{} as a numeric array, found dict"),
    "generator": (lambda values: (row for row in values), "numeric array, found generator"),
    "0-d": (lambda _: np.float64(3), r"shape \(\)"),
    "0-d tensor": (lambda _: torch.tensor(3.0), r"shape \(\)"),
}
LAYOUTS = {
    "CSR": lambda values: tensor(values).to_sparse_csr(),
    "CSC": lambda values: tensor(values).to_sparse_csc(),
    "BSR": lambda values: tensor(values).to_sparse_bsr((1, 2)),
    "BSC": lambda values: tensor(values).to_sparse_bsc((1, 2)),
}


def by_measure(arrays: Mapping[str, Any]) -> dict[str, float]:
    return dict(ncscope.measure(**arrays, groups=(*GROUPS, "nc4")))


def by_moments(arrays: Mapping[str, Any]) -> dict[str, float]:
    moments = ClassMoments(K, D)
    moments.update(arrays["features"], arrays["labels"])
    return dict(ncscope.measure_moments(moments, arrays["weight"], arrays["bias"], groups=GROUPS))


def by_torchmetrics(arrays: Mapping[str, Any], *, keep_features: bool) -> dict[str, float]:
    groups = (*GROUPS, "nc4") if keep_features else GROUPS
    metric = NeuralCollapse(K, D, groups=groups, keep_features=keep_features)
    metric.update(**arrays)
    return {key: float(value) for key, value in metric.compute().items()}


ROUTES: dict[str, Callable[[Mapping[str, Any]], dict[str, float]]] = {
    "measure": by_measure,
    "moments": by_moments,
    "torchmetrics": lambda arrays: by_torchmetrics(arrays, keep_features=False),
    "torchmetrics, features kept": lambda arrays: by_torchmetrics(arrays, keep_features=True),
}


@cache
def of_plain(route: str) -> dict[str, float]:
    """What the arrays of plain numbers give."""
    return ROUTES[route](PLAIN)


each_name = pytest.mark.parametrize("name", NAMES)


@each_name
@pytest.mark.parametrize("kind", READ)
def test_is_read_as_its_numbers(kind: str, name: str) -> None:
    for route, measured in ROUTES.items():
        given = {**PLAIN, name: READ[kind](PLAIN[name])}
        if (kind, name) == ("float8_e8m0fnu", "labels"):  # a type without zero
            with pytest.raises(InputError, match=r"integer labels, found label \S+ at row 0"):
                measured(given)
        else:
            np.testing.assert_equal(measured(given), of_plain(route), err_msg=route)


@each_name
@pytest.mark.parametrize("kind", REFUSED)
def test_is_refused_in_one_line(kind: str, name: str) -> None:
    make, message = REFUSED[kind]
    routes = set(ROUTES)
    if (kind, name) == ("words", "labels"):  # names, which a stream cannot number
        routes.remove("measure")
        assert by_measure({**PLAIN, name: make(PLAIN[name])}) == of_plain("measure")
        message = "class_names beside labels that are names"
    assert_refused(name, make, message, routes)


@pytest.mark.parametrize("name", ["features", "weight"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_layout_is_refused_in_one_line(layout: str, name: str) -> None:
    assert_refused(name, LAYOUTS[layout], r"pass {}\.to_dense\(\)")


def assert_refused(name: str, make: Kind, message: str, routes: Collection[str] = ROUTES) -> None:
    for route in routes:
        with pytest.raises(InputError, match=message.format(name)) as caught:
            ROUTES[route]({**PLAIN, name: make(PLAIN[name])})
        text = str(caught.value)
        assert text.startswith("expected ")
        assert "\n" not in text
        assert len(text) < 300


def test_long_doubles_that_float64_does_not_have() -> None:
    features = PLAIN["features"].astype(np.longdouble)
    if np.finfo(np.longdouble).maxexp == 1024:  # a platform whose long doubles are float64
        return
    for power in (5000, -5000):
        far = np.ldexp(features, power)
        with pytest.raises(InputError, match=r"range of float64.*long doubles"):
            ncscope.measure(far, PLAIN["labels"])


def test_unsigned_integers_above_those_with_a_sign() -> None:
    features = PLAIN["features"] * 2.0**60
    found = ncscope.measure(features.astype("uint64"), PLAIN["labels"])
    assert dict(found) == dict(ncscope.measure(features, PLAIN["labels"]))
