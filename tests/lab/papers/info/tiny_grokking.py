"""The recipe of grokking with runs of seconds, for tests of what stops and goes on."""

from dataclasses import replace

from ncscope.lab.papers.info.grokking import RECIPE as GROKKING
from ncscope.lab.papers.info.grokking import InfoGrokking
from ncscope.lab.papers.info.grokking_training import Grokking

TINY = InfoGrokking(
    training=Grokking(
        modulus=7,
        train_share=0.5,
        width=32,
        hidden=64,
        steps=100,
        learning_rate=0.01,
        measurements=8,
        accuracy_measurements=20,
        batch_size=8,
    ),
    seeds=(0, 1),
)
RECIPE = replace(GROKKING, scales={"paper": TINY, "small": TINY})
