"""Pixel by pixel: every pixel of a map of logits is a sample."""

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional

import ncscope
from ncscope.errors import InputError

K, D, N, SIZE = 4, 5, 6, (6, 8)
IMAGES = torch.randn(N, 3, *SIZE, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(N * SIZE[0] * SIZE[1]).view(N, *SIZE) * 7 % 11 % K
LOADER = list(zip(IMAGES.split(4), LABELS.split(4), strict=True))


class Segments(nn.Module):
    """A network whose head is a convolution of kernel 1, on maps of half the size."""

    def __init__(self, classes: int = K, enlarge: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 7, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(7, 7, 3, padding=1) for _ in "ab")
        self.wide, self.low = nn.Conv2d(7, D, 1), nn.Conv2d(7, 7, 3, stride=2)
        self.head, self.enlarge = nn.Conv2d(D, classes, 1), enlarge

    def features(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        for block in self.blocks:
            x = x + block(x).relu()
        return (self.wide(x) + self.low(x).mean(dim=(2, 3), keepdim=True)[:, :D]).relu()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        out = self.head(self.features(x))
        if self.enlarge:
            out = functional.interpolate(out, scale_factor=2, mode=self.enlarge)
        return {"out": out}


class ChannelsLast(Segments):
    """The same network with a linear layer as the head, which reads the channels last."""

    def __init__(self) -> None:
        super().__init__()
        conv, self.head = self.head, nn.Linear(D, K)
        self.head.weight.data, self.head.bias.data = conv.weight.data[:, :, 0, 0], conv.bias.data

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).movedim(1, -1)).movedim(-1, 1)


def assert_agree(found: ncscope.Report, expected: ncscope.Report) -> None:
    assert dict(found) == pytest.approx(dict(expected), rel=1e-9, abs=1e-12, nan_ok=True)


def measured(model: nn.Module, batches: object, **options: object) -> ncscope.ModelReport:
    return ncscope.measure_model(model, batches, progress=False, **options)


def rows_of(maps: Tensor) -> Tensor:
    return maps.movedim(1, -1).flatten(0, -2)


def by_hand(model: Segments, labels: Tensor, **options: object) -> ncscope.Report:
    """The report on the features of pixels, one a row."""
    with torch.no_grad():
        rows = rows_of(model.features(IMAGES))
    weight, bias = model.head.weight.flatten(1), model.head.bias
    return ncscope.measure(rows, labels.flatten(), weight, bias, **options)


HALF = [(x, y[:, ::2, ::2]) for x, y in LOADER]


@pytest.mark.parametrize("kind", [Segments, ChannelsLast])
def test_each_pixel_is_a_sample(kind):
    model = kind()
    report = measured(model, HALF, layers=["blocks.*"], layer_groups=["nc1", "pfc"])
    wanted = by_hand(model, LABELS[:, ::2, ::2])
    assert_agree(report, wanted)
    assert report.num_samples == N * 12
    maps: list[Tensor] = []
    model.blocks[1].register_forward_hook(lambda _, __, out: maps.append(out))
    with torch.no_grad():
        model(IMAGES)
    labels = LABELS[:, ::2, ::2].flatten()
    block = ncscope.measure(rows_of(maps[0]), labels, num_classes=K, groups=["nc1", "pfc"])
    assert_agree(report.layers["blocks.1"], block)
    with pytest.raises(InputError, match="'low' to return one row a pixel of the logits"):
        measured(model, HALF, layers=["low"])


@pytest.mark.parametrize("mark", [255, -100])
def test_void_pixels_are_left_out(mark):
    labels = LABELS[:, ::2, ::2].clone()
    labels[:, :1] = mark
    labels = labels.to(torch.uint8) if mark == 255 else labels  # as masks in files are
    batches = list(zip(IMAGES.split(4), labels.split(4), strict=True))
    report = measured(Segments(), batches, ignore_index=mark)
    assert_agree(report, by_hand(Segments(), labels, ignore_index=mark))
    assert report.notes[0] == f"24 of 72 samples left out: labelled {mark}"
    if mark == 255:
        with pytest.raises(InputError, match=r"ignore_index=255$"):
            measured(Segments(), batches)
    else:
        assert_agree(measured(Segments(), batches), report)


def test_a_watch_sees_pixels_and_one_logit_decides_two_classes():
    model, labels = Segments(classes=1).eval(), LABELS[:, ::2, ::2] % 2
    with torch.no_grad(), ncscope.watch(model) as seen:
        for x, y in zip(IMAGES.split(4), labels.split(4), strict=True):
            model(x)
            seen.labels(y[:, None].float())  # the form that the loss takes
    assert_agree(seen.report(), by_hand(model, labels))


@pytest.mark.parametrize("enlarge", ["bilinear", "nearest"])
def test_enlarged_logits_are_refused_and_the_advice_gives_the_number(enlarge):
    model = Segments(enlarge=enlarge)
    with pytest.raises(InputError, match=r"'head' for 3 x 4 pixels, enlarged to 6 x 8") as error:
        measured(model, LOADER)
    options = eval(f"dict({error.value.fix[5:].replace(', and labels of its resolution: ', ',')})")
    report = measured(model, LOADER, **options)
    assert_agree(report, by_hand(model, LABELS[:, ::2, ::2]))
    with pytest.raises(InputError, match=r"each pixel of the logits, 4 x 3 x 4, found.*6, 8\)"):
        measured(model, LOADER, head="head")


@pytest.mark.parametrize("labels", [LABELS, LABELS[:, ::2, ::2]])
def test_transposed_labels_are_refused_and_the_advice_gives_the_number(labels):
    batches = list(zip(IMAGES.split(4), labels.mT.split(4), strict=True))
    with pytest.raises(InputError, match="transpose") as error:
        measured(Segments(), batches)
    options = eval(f"dict({error.value.fix.partition(': ')[2]})")
    report = measured(Segments(), batches, **options)
    assert_agree(report, by_hand(Segments(), LABELS[:, ::2, ::2]))


def test_labels_of_another_resolution_are_refused_and_the_advice_gives_the_number():
    for labels in (LABELS, functional.pad(LABELS, (0, 1))):
        batches = list(zip(IMAGES.split(4), labels.split(4), strict=True))
        with pytest.raises(InputError, match="split_batch") as error:
            measured(Segments(), batches)
        options = eval(f"dict({error.value.fix.partition(': ')[2]})")
        report = measured(Segments(), batches, **options)
        small = functional.interpolate(labels[:, None].float(), (3, 4))[:, 0].long()
        assert_agree(report, by_hand(Segments(), small))
    with pytest.raises(InputError, match="found labels of shape"):
        measured(Segments(), [(IMAGES, torch.arange(N) % K)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fcn_resnet50", "lraspp_mobilenet_v3_large"])
def test_networks_of_torchvision(name):
    torch.manual_seed(0)
    build = getattr(torchvision.models.segmentation, name)
    model = build(weights=None, weights_backbone=None, num_classes=K).eval()
    images = torch.randn(3, 3, 64, 64)
    labels = torch.arange(3 * 64 * 64).view(3, 64, 64) // 8 % K
    if name.startswith("lraspp"):  # a sum of two layers' outputs
        with pytest.raises(InputError, match="a convolution of kernel 1, alone, found none"):
            measured(model, [(images, labels)], layers=[])
        return
    with pytest.raises(InputError, match=r"'classifier.4' for 8 x 8 pixels, enlarged to 64 x 64"):
        measured(model, [(images, labels)], layers=[])
    report = measured(
        model,
        [(images, labels)],
        layers=[],
        groups=["nc1", "nc3"],
        head="classifier.4",
        split_batch=lambda batch: (batch[0], batch[1][..., ::8, ::8]),
    )
    maps: list[Tensor] = []
    model.classifier[4].register_forward_pre_hook(lambda _, args: maps.append(args[0]))
    with torch.no_grad():
        model(images)
    head = model.classifier[4]
    wanted = ncscope.measure(
        rows_of(maps[0]),
        labels[:, ::8, ::8].flatten(),
        head.weight.flatten(1),
        head.bias,
        groups=["nc1", "nc3"],
    )
    assert_agree(report, wanted)
