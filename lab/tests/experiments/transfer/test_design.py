"""The zoo's networks and targets: balance, halves, shards, and the protocol on the page."""

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from ncscope.errors import InputError
from ncscope_lab.experiment import Part
from ncscope_lab.experiments.transfer.cells import Tuning
from ncscope_lab.experiments.transfer.design import (
    AUGMENTATIONS,
    DECAYS,
    LOSSES,
    TARGET_SEED,
    TransferZoo,
    is_tuned,
    list_networks,
    list_targets,
)
from ncscope_lab.experiments.transfer.zoo import EXPERIMENT
from ncscope_lab.runs.settings import change_settings
from ncscope_lab.training.settings import Training

ZOO = TransferZoo()
PAGE = Path(__file__).parents[4] / "docs" / "transfer-zoo.md"
(ENTRY,) = yaml.safe_load(PAGE.read_text().split("```yaml\n")[1].split("```")[0])
LARGER = EXPERIMENT.configure("small", ENTRY)
"""The zoo of larger networks and images, whose settings stand on the page."""

_LOSS_FIELDS = sorted({field for loss in LOSSES for field in loss})


def loss_of(training: Training) -> tuple[Any, ...]:
    return tuple(getattr(training, field) for field in _LOSS_FIELDS)


FACTORS: dict[str, Callable[[Training], object]] = {
    "source": lambda training: training.data,
    "loss": loss_of,
    "length": lambda training: training.optimisation.epochs,
    "decay": lambda training: training.optimisation.weight_decay,
    "augmentation": lambda training: training.augmentation,
}


def values_of(config: TransferZoo) -> dict[str, set[object]]:
    """Return all values of each factor, from the settings alone."""
    plain = Training(data="digits", network="small-conv")
    return {
        "source": set(config.sources),
        "loss": {loss_of(plain.model_copy(update=loss)) for loss in LOSSES},
        "length": set(config.epochs),
        "decay": set(DECAYS),
        "augmentation": set(AUGMENTATIONS),
    }


def given_to(part: Part) -> tuple[Training, list[str], list[str], Tuning]:
    """Return training, targets, tuned targets and tuning of a part."""
    assert isinstance(part.run, partial)
    training, targets, tuned, tuning = part.run.args
    return training, targets, tuned, tuning


@pytest.mark.parametrize("config", [ZOO, LARGER], ids=["small", "larger"])
def test_the_halves_share_no_target_and_no_held_out_architecture(config):
    assert len(set(config.targets)) == len(config.design_targets) + len(config.report_targets)
    assert not {*config.design_targets} & {*config.report_targets}
    assert not {*config.design_architectures} & {*config.held_out_architectures}
    assert {*config.sources} <= {*config.report_targets}


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("count", [16, 7, 2])
def test_within_an_architecture_every_value_is_used_equally_often_up_to_one(factor, count):
    config = ZOO.model_copy(update={"networks": count})
    trained = list_networks(config).values()
    for architecture in config.architectures:
        own = [each for each in trained if each.network == architecture]
        used = Counter(FACTORS[factor](each) for each in own)
        assert len(own) == count
        assert set(used) <= values_of(config)[factor]
        counts = [used[value] for value in values_of(config)[factor]]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("pair", list(combinations(FACTORS, 2)), ids=" and ".join)
def test_two_factors_occur_in_all_combinations(pair):
    first, second = (FACTORS[name] for name in pair)
    seen = {(first(each), second(each)) for each in list_networks(ZOO).values()}
    sizes = [len(values_of(ZOO)[name]) for name in pair]
    assert len(seen) == sizes[0] * sizes[1]


def test_names_seeds_and_optimisers_of_the_networks():
    trained = list_networks(ZOO)
    assert [name.rsplit(" ", 1)[0] for name in trained] == [
        training.network for training in trained.values()
    ]
    seeds = [training.seed for training in trained.values()]
    assert len(set(seeds)) == len(trained)
    assert max(seeds) < TARGET_SEED
    optimisers = {
        (training.network, training.optimisation.optimiser) for training in trained.values()
    }
    assert optimisers == {
        (name, "adamw" if name == "small-vit" else "sgd") for name in ZOO.architectures
    }


def test_settings_of_a_network_are_the_same_at_every_call_and_in_every_shard():
    sharded = TransferZoo(shard=1, shards=3)
    assert list_networks(ZOO) == list_networks(TransferZoo()) == list_networks(sharded)


@pytest.mark.parametrize("config", [ZOO, LARGER], ids=["small", "larger"])
def test_a_network_is_judged_on_all_targets_but_its_own_images(config):
    for source in config.sources:
        found = list_targets(source, config.targets)
        same = {"digits"} if source == "warped-digits" else set()
        assert set(config.targets) - set(found) == {source} | same
        assert found == [name for name in config.targets if name in found]
    for part in EXPERIMENT.parts(config):
        training, targets, tuned, _ = given_to(part)
        assert targets == list_targets(training.data, config.targets)
        assert {*tuned} <= {*targets}
        assert part.yields == training.optimisation.epochs + len(targets)
        assert part.trains


def test_a_third_of_the_cells_has_the_truth_by_fine_tuning():
    cells = [(part.name, target) for part in EXPERIMENT.parts(ZOO) for target in given_to(part)[1]]
    tuned = [(part.name, target) for part in EXPERIMENT.parts(ZOO) for target in given_to(part)[2]]
    assert 0.30 <= len(tuned) / len(cells) <= 0.37
    for target in ZOO.targets:
        among = sum(each[1] == target for each in cells)
        assert 0.2 <= sum(each[1] == target for each in tuned) / among <= 0.46
    assert {each[0] for each in tuned} == set(list_networks(ZOO))
    assert [is_tuned(0, 0), is_tuned(1, 2), is_tuned(2, 2)] == [True, True, False]


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_shards_partition_the_parts(shards):
    whole = {part.name: given_to(part) for part in EXPERIMENT.parts(ZOO)}
    sharded = [EXPERIMENT.parts(TransferZoo(shard=n, shards=shards)) for n in range(shards)]
    names = [part.name for parts in sharded for part in parts]
    assert sorted(names) == sorted(whole)
    sizes = [len(parts) for parts in sharded]
    assert max(sizes) - min(sizes) <= 1
    for parts in sharded:
        assert all(given_to(part) == whole[part.name] for part in parts)


@pytest.mark.parametrize(("shard", "shards"), [(1, 1), (2, 2), (7, 3)])
def test_a_shard_that_is_not_there_is_refused(shard, shards):
    with pytest.raises(ValidationError, match=f"shard 0 to {shards - 1}"):
        TransferZoo(shard=shard, shards=shards)
    with pytest.raises(InputError, match=f"expected shard 0 to {shards - 1}, found"):
        change_settings(ZOO, {"shard": shard, "shards": shards})


@pytest.mark.parametrize(
    "twice",
    [
        {"design_targets": ["digits"]},
        {"report_targets": ["gratings", "gratings"]},
        {"held_out_architectures": ["small-conv"]},
        {"sources": ["gratings", "gratings"]},
    ],
)
def test_a_name_that_stands_twice_is_refused(twice):
    with pytest.raises(InputError, match="expected each name once, in one half only, among"):
        change_settings(ZOO, twice)


def test_the_protocol_on_the_page_is_that_of_the_code():
    protocol = " ".join(_protocol().split())
    lists = dict(re.findall(r"\* ([A-Z][a-z -]+): (.*?)\.(?= \*| \*\*|$)", protocol))
    named = {title: tuple(re.findall("`([^`]+)`", text)) for title, text in lists.items()}
    assert named["Design architectures"] == ZOO.design_architectures
    assert named["Held-out architectures"] == ZOO.held_out_architectures
    assert named["Sources"] == ZOO.sources
    assert named["Design targets"] == ZOO.design_targets
    assert lists["Report targets"].endswith("and the three sources")
    assert named["Report targets"] + ZOO.sources == ZOO.report_targets
    settings = re.search(r"\* Lengths (.*?) epochs; weight decays (.*?); (.*?)\.(?= )", protocol)
    assert settings is not None
    assert _numbers(settings[1]) == list(ZOO.epochs)
    assert _numbers(settings[2]) == list(DECAYS)
    assert settings[3] == "random crops or none"
    assert set(AUGMENTATIONS) == {"crop", "none"}


def test_the_numbers_on_the_page_are_those_of_the_code():
    page = " ".join(PAGE.read_text().split())
    assert f"trains {len(list_networks(ZOO))} small networks" in page
    assert f"to other data sets, {len(ZOO.targets)} in all" in page
    most = max(len(list_targets(source, ZOO.targets)) for source in ZOO.sources)
    assert f"on up to {most - 1} other sets" in page
    assert f"with {ZOO.networks} networks each" in page
    assert "(network number plus target number divisible by three)" in page
    assert f"for {ZOO.tuning_epochs} epochs" in page
    temperatures = sorted({each.temperature for each in list_networks(ZOO).values()})
    assert _numbers(_between(page, "cross-entropy at temperatures ", ";")) == temperatures
    assert f"label smoothing {max(x.get('label_smoothing', 0) for x in LOSSES)}" in page
    cosine = max(loss.get("within_class_cosine", 0) for loss in LOSSES)
    assert f"penalty of {cosine:g} on the cosine similarity within classes" in page
    assert "squared error" in page


def _protocol() -> str:
    return PAGE.read_text().split("## Protocol", 1)[1]


def _between(text: str, before: str, after: str) -> str:
    return text.split(before, 1)[1].split(after, 1)[0]


def _numbers(text: str) -> list[float]:
    return [float(each) for each in re.findall(r"\d+(?:\.\d+)?", text)]
