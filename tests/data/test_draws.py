"""Seeds depend on all numbers; the global generator is left as it was."""

import itertools

import pytest
import torch

from ncscope.data.draws import generator, seed_global_generator, stream_seed


def test_nearby_numbers_have_seeds_of_their_own():
    seeds = [stream_seed(*key) for key in itertools.product(range(12), repeat=3)]
    assert len(set(seeds)) == len(seeds)
    assert 0 <= min(seeds) <= max(seeds) < 2**32


@pytest.mark.parametrize(("one", "other"), [((1, 23), (12, 3)), ((0,), (0, 0)), ((1, 2), (2, 1))])
def test_numbers_are_not_run_together(one, other):
    assert stream_seed(*one) != stream_seed(*other)


def test_the_global_generator_goes_on_as_before():
    torch.default_generator.manual_seed(5)
    alone = torch.rand(2)
    torch.default_generator.manual_seed(5)
    first = torch.rand(())
    with seed_global_generator(1, 2):
        inside = torch.rand(())
    assert torch.equal(torch.stack([first, torch.rand(())]), alone)
    assert torch.equal(inside, torch.rand((), generator=generator(1, 2)))


def test_it_is_restored_after_an_error():
    state = torch.default_generator.get_state()
    with pytest.raises(RuntimeError), seed_global_generator(0):
        torch.rand(2) @ torch.rand(3)
    assert torch.equal(torch.default_generator.get_state(), state)
