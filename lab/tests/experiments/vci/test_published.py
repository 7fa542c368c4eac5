"""The accuracies of the paper's downstream sets."""

from ncscope.data.catalogue import CATALOGUE
from ncscope_lab.experiments.vci.published import DOWNSTREAM
from tests.data.downstream_on_disk import DOWNSTREAM_WRITERS


def test_accuracies_are_those_that_the_paper_names() -> None:
    per_class = [name for name in DOWNSTREAM if CATALOGUE[name].measure == "mean per class"]
    assert per_class == ["pets", "flowers", "aircraft", "caltech101"]
    assert set(DOWNSTREAM) - set(DOWNSTREAM_WRITERS) == {"cifar10", "cifar100"}
