"""Grokking with runs of seconds, for tests of what stops and goes on."""

from dataclasses import replace

from ncscope_lab.experiments.info.grokking import EXPERIMENT, InfoGrokking
from ncscope_lab.experiments.info.modular_addition import Grokking

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
TINY_EXPERIMENT = replace(EXPERIMENT, scales={"paper": TINY, "small": TINY})
