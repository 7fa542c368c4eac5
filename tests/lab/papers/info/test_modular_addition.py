"""Every pair once, in one part or the other."""

import torch

from ncscope.lab.papers.info.modular_addition import mirrored, modular_addition


def test_the_parts_are_all_pairs_with_their_sums() -> None:
    split = modular_addition(13, 0.3, seed=5)
    assert [len(part.labels) for part in split] == [51, 118]
    together = torch.cat([part.pairs for part in split])
    assert len({(int(a), int(b)) for a, b in together}) == 13**2
    assert int(together.min()) == 0
    assert int(together.max()) == 12
    for pairs, labels in split:
        assert labels.tolist() == [int(a + b) % 13 for a, b in pairs]


def test_the_choice_is_the_seed_s() -> None:
    first, again, other = (modular_addition(13, 0.3, seed).train.pairs for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_mirrored_pairs_are_training_pairs_in_the_other_order() -> None:
    split = modular_addition(13, 0.3, seed=5)
    known = {(int(a), int(b)) for a, b in split.train.pairs}
    found = mirrored(split).tolist()
    assert found == [(int(b), int(a)) in known for a, b in split.test.pairs]
    assert 0 < sum(found) < len(found)
