"""Decisions are float64's, also where float32 cannot tell the two best scores apart."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ncscope.math import scores
from ncscope.math.scores import LinearScores, float32_centre, head_scores, nearest_mean_scores
from ncscope.stats.decisions import Decider

K, D = 7, 12


def in_float64(
    features: Tensor, means: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Plain float64: nearest mean, and the head's choice."""
    rows = features.double()
    distances = (rows[:, None] - means).square().sum(2)
    return distances.argmin(1), (rows @ weight.T + bias).argmax(1)


def near_ties(seed: int, offset: float, count: int = 4000) -> tuple[Tensor, ...]:
    """float32 rows moved to the boundary of two means and of two heads, as near as float32 gets.

    The rows keep the float32 rounding of the move, so the two best scores differ by about one
    rounding of a feature, which is less than the rounding of a float32 product.
    """
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(K, D, generator=generator, dtype=torch.float64) + offset
    weight = torch.randn(K, D, generator=generator, dtype=torch.float64)
    bias = torch.randn(K, generator=generator, dtype=torch.float64) - weight.sum(1) * offset
    rows = means[torch.randint(K, (count,), generator=generator)]
    rows = rows + torch.randn(count, D, generator=generator, dtype=torch.float64)
    half = count // 2
    for part, normals, offsets in (
        (slice(half), means, -means.square().sum(1) / 2),
        (slice(half, count), weight, bias),
    ):
        best = (rows[part] @ normals.T + offsets).topk(2, dim=1).indices
        normal = normals[best[:, 0]] - normals[best[:, 1]]
        height = (rows[part] * normal).sum(1) + offsets[best[:, 0]] - offsets[best[:, 1]]
        rows[part] -= (height / normal.square().sum(1))[:, None] * normal
    return rows.float(), means, weight, bias


@pytest.fixture(params=["highest", "high", "medium"])
def matmul_precision(request: pytest.FixtureRequest) -> Iterator[str]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("matmul_precision")
@pytest.mark.parametrize("offset", [0.0, 10.0, 1e4])
@pytest.mark.parametrize("seed", range(3))
def test_near_ties_are_decided_as_in_float64(seed: int, offset: float) -> None:
    features, means, weight, bias = near_ties(seed, offset)
    nearest, chosen = in_float64(features, means, weight, bias)
    labels = torch.arange(len(features)) % K
    counts = Decider(torch.arange(K), means, weight, bias)(features, labels).read()
    assert counts.nearest_hits == int((nearest == labels).sum())
    assert counts.head_hits == int((chosen == labels).sum())
    assert counts.disagreements == int((nearest != chosen).sum())


def test_float64_decides_the_doubtful_rows_or_all_where_float32_is_reduced(
    matmul_precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, means, weight, bias = near_ties(5, 10.0)
    plain = torch.randn(4000, D, generator=torch.Generator().manual_seed(0)) + 10
    rows: list[int] = []
    exact = LinearScores._decide_in_float64

    def counted(scorer: LinearScores, chunk: Tensor) -> Tensor:
        rows.append(len(chunk))
        return exact(scorer, chunk)

    monkeypatch.setattr(LinearScores, "_decide_in_float64", counted)
    decide = Decider(torch.arange(K), means, weight, bias)
    decide(plain, torch.zeros(4000, dtype=torch.int64))
    if matmul_precision == "highest":
        assert sum(rows) < 40
    else:
        assert sum(rows) == 2 * 4000
    rows.clear()
    decide(features, torch.zeros(4000, dtype=torch.int64))
    assert sum(rows) > 3000


def test_every_near_tie_by_itself() -> None:
    features, means, weight, bias = near_ties(5, 10.0)
    nearest, chosen = in_float64(features, means, weight, bias)
    centre = float32_centre(means)
    assert torch.equal(nearest_mean_scores(means, centre).argmax(features), nearest)
    assert torch.equal(head_scores(weight, bias, centre).argmax(features), chosen)


def test_float32_alone_would_get_them_wrong() -> None:
    """The rows above are as hard as they claim."""
    features, means, weight, bias = near_ties(5, 10.0)
    nearest, chosen = in_float64(features, means, weight, bias)
    half = len(features) // 2
    by_distance = torch.cdist(features, means.float()).argmin(1)
    by_score = (features @ weight.float().T + bias.float()).argmax(1)
    assert int((by_distance != nearest)[:half].sum()) > 100
    assert int((by_score != chosen)[half:].sum()) > 100


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64]
)
def test_any_type_is_decided_as_its_numbers_are(dtype: torch.dtype) -> None:
    features, means, weight, bias = near_ties(1, 10.0)
    features = features.to(dtype)
    nearest, chosen = in_float64(features, means, weight, bias)
    counts = Decider(torch.arange(K), means, weight, bias)(features, nearest).read()
    assert counts.nearest_hits == counts.samples == len(features)
    assert counts.disagreements == int((nearest != chosen).sum())


def test_the_first_of_equal_scores_wins() -> None:
    means = torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64)
    decide = Decider(torch.tensor([2, 5, 7]), means)
    for dtype in (torch.float64, torch.float32):
        rows = torch.tensor([[1.0], [2.0], [-3.0]], dtype=dtype)
        assert decide(rows, torch.tensor([2, 2, 5])).read().nearest_hits == 3


def test_a_single_class_always_wins() -> None:
    decide = Decider(torch.tensor([3]), torch.zeros(1, 2, dtype=torch.float64))
    counts = decide(torch.randn(4, 2), torch.tensor([3, 3, 0, 3])).read()
    assert (counts.samples, counts.nearest_hits) == (4, 3)
    assert counts.head_hits is counts.disagreements is None


def test_counts_add_up_over_batches() -> None:
    features, means, weight, bias = near_ties(2, 0.0, count=200)
    labels = torch.arange(200) % K
    decide = Decider(torch.arange(K), means, weight, bias)
    pieces = [decide(h, y) for h, y in zip(features.split(37), labels.split(37), strict=True)]
    total = pieces[0]
    for piece in pieces[1:]:
        total = total + piece
    assert total.read() == decide(features, labels).read()
    headless = Decider(torch.arange(K), means)
    assert (headless(features, labels) + headless(features, labels)).read().head_hits is None


def test_many_rows_and_classes_are_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    features, means, weight, bias = near_ties(3, 0.0)
    centre = float32_centre(means)
    made = [lambda: nearest_mean_scores(means, centre), lambda: head_scores(weight, bias, centre)]
    whole = [make().argmax(features) for make in made]
    monkeypatch.setattr("ncscope.math.scores._CHUNK_BYTES", 1)
    monkeypatch.setattr("ncscope.math.scores._BLOCK", 2)
    for make, expected in zip(made, whole, strict=True):
        assert torch.equal(make().argmax(features), expected)


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("scale", [1.0, 1e60])
def test_overflow_and_autocast_do_not_change_decisions(scale):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(2000) % 50
    means = torch.randn(50, 64, generator=generator)
    features = means[labels] + 2 * torch.randn(2000, 64, generator=generator)
    weight = scale * means.double()
    expected = Decider(torch.arange(50), means.double(), weight)(features.double(), labels).read()
    found = Decider(torch.arange(50), means.double(), weight)(features, labels).read()
    with torch.autocast("cpu", torch.bfloat16):
        inside = Decider(torch.arange(50), means.double(), weight)(features, labels).read()
    assert found == inside == expected


def test_reduced_float32_products_are_not_trusted():
    matmul = torch.backends.mkldnn.matmul
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("torch before 2.9 has one setting only")
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        assert scores.float32_is_reduced("cpu")
    finally:
        matmul.fp32_precision = before
    assert not scores.float32_is_reduced("cpu")


@pytest.mark.parametrize(
    ("rows_by", "weight_by"),
    [(1e-20, 1e-24), (1e-30, 1e25), (1e-38, 1.0), (1e-40, 1e3), (1.0, 1e-42), (1e19, 1e19)],
)
def test_float32_rows_near_the_ends_of_float32(rows_by: float, weight_by: float) -> None:
    """Products that float32 loses to underflow, and partial sums that it loses to overflow."""
    generator = torch.Generator().manual_seed(0)
    rows = (torch.randn(4000, D, generator=generator, dtype=torch.float64) * rows_by).float()
    weight = torch.randn(K, D, generator=generator, dtype=torch.float64) * weight_by
    weight[1] = weight[0] * (1 + 1e-4)
    weight[2:] *= 1e-3
    chosen = (rows.double() @ weight.T).argmax(1)
    scores = LinearScores(weight, torch.zeros(K).double(), torch.zeros(D).double())
    assert torch.equal(scores.argmax(rows), chosen)
    means = weight / weight_by * rows_by
    nearest = (rows.double()[:, None] - means).square().sum(2).argmin(1)
    assert torch.equal(nearest_mean_scores(means, float32_centre(means)).argmax(rows), nearest)


def test_a_partial_sum_beyond_float32() -> None:
    """A score's first products overflow together to minus infinity; the whole sum is the best."""
    generator = torch.Generator().manual_seed(1099)
    torch.randint(2, 40, (1,), generator=generator)
    rows = (torch.randn(64, 18, generator=generator) * 10**18.6).float()
    weight = torch.randn(3, 18, generator=generator).double() * 10**18.9
    chosen = (rows.double() @ weight.T).argmax(1)
    scores = LinearScores(weight, torch.zeros(3).double(), torch.zeros(18).double())
    assert torch.equal(scores.argmax(rows), chosen)


@pytest.mark.parametrize("exponent", [-300, 300])
def test_the_centre_keeps_its_digits_at_any_scale(exponent: int) -> None:
    means = torch.randn(K, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(float32_centre(means * 2.0**exponent), float32_centre(means) * 2.0**exponent)
    assert torch.equal(float32_centre(means), means.mean(0).float().double())


@pytest.mark.parametrize("power", [-1000, -470, 470, 1000])
@pytest.mark.parametrize("with_bias", [False, True])
def test_decisions_of_a_head_do_not_depend_on_its_scale(power: int, with_bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, means, weight = (
        torch.randn(count, D, generator=generator, dtype=torch.float64) for count in (200, K, K)
    )
    bias = torch.randn(K, generator=generator, dtype=torch.float64) if with_bias else None
    labels = (rows @ weight.T + (0 if bias is None else bias)).argmax(1)
    scaled = None if bias is None else bias * 2.0**power
    decide = Decider(torch.arange(K), means, weight * 2.0**power, scaled)
    assert decide(rows, labels).read().head_hits == len(rows)


def test_counts_by_class_are_the_totals_taken_apart() -> None:
    features, means, weight, bias = near_ties(4, 0.0, count=300)
    labels = torch.arange(300) ** 2 % (K + 2)  # the classifier has rows for classes K and K + 1
    weight, bias = torch.cat([weight, weight[:2] / 9]), torch.cat([bias, bias[:2]])
    nearest, chosen = in_float64(features, means, weight, bias)
    decide = Decider(torch.arange(K), means, weight, bias)
    counts = (decide(features[:99], labels[:99]) + decide(features[99:], labels[99:])).read()
    marks = (nearest == labels, chosen == labels, nearest != chosen)
    wanted = torch.stack([torch.bincount(labels[mark], minlength=K + 2) for mark in marks])
    assert counts.by_class is not None
    assert torch.equal(counts.by_class, wanted)
    totals = (counts.nearest_hits, counts.head_hits, counts.disagreements)
    assert totals == tuple(wanted.sum(1).tolist())
    assert counts.hits is not None
    assert torch.equal(counts.hits.by_class, wanted[1])
    twice = counts + counts
    assert torch.equal(twice.by_class, 2 * wanted)
    assert twice.samples == 600


def test_counts_of_a_stream_that_found_more_classes_later() -> None:
    means = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
    rows, labels = means.float(), torch.arange(3)
    few = Decider(torch.arange(2), means[:2])(rows[:2], labels[:2]).read()
    more = Decider(torch.arange(3), means)(rows, labels).read()
    for total in (few + more, more + few):
        assert total.by_class.tolist() == [[2, 2, 1]]
        assert total.nearest_hits == 5


@pytest.mark.parametrize("label", [-1, 7, 10**9])
def test_a_label_that_is_no_class_is_a_miss(label: int) -> None:
    """A second pass over shards may meet a label that the first had not seen."""
    means = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    decide = Decider(torch.tensor([0, 1]), means, means.flip(0))
    counts = decide(torch.tensor([[0.0], [1.0]]), torch.tensor([0, label])).read()
    assert (counts.samples, counts.nearest_hits) == (2, 1)
    assert counts.by_class.sum(1).tolist() == [1, counts.head_hits, counts.disagreements]


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_coinciding_means_the_first_is_nearest_whatever_the_order_of_the_samples(
    offset: float, dtype: torch.dtype
) -> None:
    """Classes 1 and 2 hold the same samples: their means differ by the rounding of the sums."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(30, 4, generator=generator, dtype=torch.float64).to(dtype) + offset
    features = torch.cat([rows + 9, rows, rows])
    labels = torch.arange(3).repeat_interleave(30)
    exact = True
    for _ in range(20):
        order = torch.randperm(90, generator=generator)
        x, y = features[order], labels[order]
        means = torch.stack([x[y == c].to(torch.float64).cumsum(0)[-1] / 30 for c in range(3)])
        exact &= bool((means[1] == means[2]).all())
        counts = Decider(torch.arange(3), means)(x, y).read()
        assert counts.by_class is not None
        assert counts.by_class[0].tolist() == [30, 30, 0]
    assert not exact or dtype == torch.float32  # sums of few float32 numbers are exact
