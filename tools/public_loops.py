"""Public training scripts, with and without us: the least edit, and what it changes.

    python tools/public_loops.py FOLDER [--only WORD]

The folder holds checkouts, as ``git clone https://github.com/OWNER/NAME FOLDER/OWNER/NAME`` makes
them; scripts that are not there are left out. Each script is copied, gets the lines of its entry in
`SCRIPTS`, and runs for a few steps on made data on the CPU, in a process of its own; then once
without the lines. The table says whether both runs end, whether weights, buffers and random states
are equal bit for bit, and what the lines cost: CPU seconds of the process, without loaders' workers
and the import of our library, beside the seconds of the script itself. Nothing of the scripts is in
this file but the beginnings of the lines beside which ours stand.

A stand-in replaces what a script would download, and CUDA where a script asks for no other device.
`Script.settings` are the numbers that make a run short. Neither counts as an edit.
"""

import argparse
import gc
import hashlib
import json
import os
import random
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[1]
MOST_LINES = 5


@dataclass(frozen=True)
class Edit:
    """A line of ours in a script of somebody else.

    Attributes:
        line: The line with its indentation.
        after: Beginning of the line that it follows; the first one within ``within``.
        before: Beginning of the line that it precedes.
        instead: Beginning of the line that it replaces.
        within: Beginning of the line from which on the other line is looked for.
    """

    line: str
    after: str = ""
    before: str = ""
    instead: str = ""
    within: str = ""

    def apply(self, lines: list[str]) -> list[str]:
        """Return the lines of the script with this one.

        Raises:
            ValueError: If the script has no such line.
        """
        start = self._find(lines, self.within, 0) if self.within else 0
        at = self._find(lines, self.after or self.before or self.instead, start)
        if self.instead:
            return [*lines[:at], self.line, *lines[at + 1 :]]
        at += bool(self.after)
        return [*lines[:at], self.line, *lines[at:]]

    @staticmethod
    def _find(lines: Sequence[str], beginning: str, start: int) -> int:
        for at in range(start, len(lines)):
            if lines[at].strip().startswith(beginning):
                return at
        message = f"the script has no line that begins with {beginning!r}"
        raise ValueError(message)


@dataclass(frozen=True)
class Script:
    """A public training script, and the least edit with which we measure its evaluations.

    Attributes:
        repository: Owner and name.
        file: Path in the repository.
        edits: Lines of ours.
        arguments: Arguments of the short run.
        settings: File to texts and their replacements, which make the run short.
        make: Function that makes data in the copy of the repository.
    """

    repository: str
    file: str
    edits: tuple[Edit, ...]
    arguments: str = ""
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    make: Callable[[Path], None] = lambda folder: None

    @property
    def name(self) -> str:
        """Repository and file."""
        return f"{self.repository} {self.file}"


IMPORT = Edit("import ncscope", before="import torch")
REPORT = 'print(seen.report()["nc1"])'


def make_images(folder: Path, count: int, size: int, flat: bool = False) -> None:
    """Make small pictures of four classes, a folder for each class or with the class as name."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for index in range(count):
        kind = f"class{index % 4}"
        pixels = generator.integers(0, 120, (size, size, 3)) + 40 * (index % 4)
        path = folder / f"{kind}_{index}.jpg" if flat else folder / kind / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)


def make_image_folders(folder: Path) -> None:
    """Make a training and a validation set as `ImageFolder` reads them."""
    make_images(folder / "made" / "train", 32, 40)
    make_images(folder / "made" / "val", 24, 40)


def make_text(folder: Path) -> None:
    """Make two files of tokens below 65."""
    import pickle

    made = folder / "data" / "made"
    made.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for split in ("train", "val"):
        generator.integers(0, 65, 4000).astype(np.uint16).tofile(made / f"{split}.bin")
    (made / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65}))


def make_pretrained(folder: Path) -> None:
    """Make a checkpoint of the contrastive network, with the repository's own class."""
    code = (
        "import torch; from networks.resnet_big import SupConResNet; torch.manual_seed(0); "
        "torch.save({'model': SupConResNet('resnet18').state_dict()}, 'made.pth')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


SCRIPTS = (
    Script(
        "pytorch/examples",
        "mnist/main.py",
        (
            IMPORT,
            Edit(
                "    with torch.no_grad(), ncscope.watch(model) as seen:",
                instead="with torch.no_grad():",
                within="def test(",
            ),
            Edit(
                "            seen.labels(target)", after="output = model(data)", within="def test("
            ),
            Edit(f"    {REPORT}", before="test_loss /=", within="def test("),
        ),
        "--epochs 2 --no-accel --batch-size 32",
    ),
    Script(
        "pytorch/examples",
        "imagenet/main.py",
        (
            IMPORT,
            Edit(
                "        with torch.no_grad(), ncscope.watch(model, pool=True) as seen:",
                instead="with torch.no_grad():",
                within="def run_validate(",
            ),
            Edit(
                "                seen.labels(target)",
                after="output = model(images)",
                within="def run_validate(",
            ),
            Edit(
                f"        {REPORT}", before="batch_time = AverageMeter", within="def run_validate("
            ),
        ),
        "made -a resnet18 --epochs 2 -b 16 -j 2 --seed 1 --no-accel",
        make=lambda folder: make_image_folders(folder / "imagenet"),
    ),
    Script(
        "kuangliu/pytorch-cifar",
        "main.py",
        (
            IMPORT,
            Edit(
                "    with torch.no_grad(), ncscope.watch(net) as seen:",
                instead="with torch.no_grad():",
                within="def test(",
            ),
            Edit("            seen.labels(targets)", after="outputs = net(", within="def test("),
            Edit(f"    {REPORT}", before="acc = ", within="def test("),
        ),
        settings={"main.py": {"start_epoch+200": "start_epoch+2"}},
    ),
    Script(
        "weiaicunzai/pytorch-cifar100",
        "train.py",
        (
            IMPORT,
            Edit(
                "    print(ncscope.measure_model(net, cifar100_test_loader)['nc1'])",
                after="finish = time.time()",
                within="def eval_training(",
            ),
        ),
        "-net resnet18 -b 32",
        settings={"conf/global_settings.py": {"EPOCH = 200": "EPOCH = 2"}},
    ),
    Script(
        "huggingface/pytorch-image-models",
        "train.py",
        (
            IMPORT,
            Edit(
                "    with torch.inference_mode(), ncscope.watch(model) as seen:",
                instead="with torch.inference_mode():",
                within="def validate(",
            ),
            Edit(
                "                seen.labels(target)",
                after="output = model(input)",
                within="def validate(",
            ),
            Edit(f"    {REPORT}", before="metrics = OrderedDict(", within="def validate("),
        ),
        "--data-dir made --val-split val --model resnet10t --num-classes 4 --epochs 2 "
        "--warmup-epochs 0 --batch-size 16 --workers 2 --device cpu --input-size 3 64 64 "
        "--model-ema --mixup 0.2 --output out",
        make=make_image_folders,
    ),
    Script(
        "karpathy/nanoGPT",
        "train.py",
        (
            IMPORT,
            Edit("    seen = ncscope.watch(model)", after="out = {}", within="def estimate_loss("),
            Edit("            with ctx, seen:", instead="with ctx:", within="def estimate_loss("),
            Edit(
                "                seen.labels(Y)",
                after="logits, loss = model(X, Y)",
                within="def estimate_loss(",
            ),
            Edit(f"        {REPORT}", after="out[split] =", within="def estimate_loss("),
        ),
        "--device=cpu --dtype=float32 --compile=False --eval_iters=3 --eval_interval=4 "
        "--block_size=16 --batch_size=8 --n_layer=2 --n_head=2 --n_embd=32 --max_iters=8 "
        "--dataset=made --dropout=0.1 --gradient_accumulation_steps=2",
        make=make_text,
    ),
    Script(
        "HobbitLong/SupContrast",
        "main_linear.py",
        (
            IMPORT,
            Edit(
                "    with torch.no_grad(), ncscope.watch(classifier) as seen:",
                instead="with torch.no_grad():",
                within="def validate(",
            ),
            Edit(
                "            seen.labels(labels)",
                after="output = classifier(",
                within="def validate(",
            ),
            Edit(f"    {REPORT}", before="print(' * Acc@1", within="def validate("),
        ),
        "--model resnet18 --ckpt made.pth --epochs 2 --batch_size 32 --num_workers 2",
        settings={
            "main_linear.py": {"if torch.cuda.is_available():": "if True:"},
            "util.py": {"correct[:k].view(-1)": "correct[:k].reshape(-1)"},  # for a newer torch
        },
        make=make_pretrained,
    ),
    Script(
        "HobbitLong/SupContrast",
        "main_supcon.py",
        (
            IMPORT,
            Edit(
                "    moments = ncscope.ClassMoments(10, 128)",
                after="losses = AverageMeter()",
                within="def train(",
            ),
            Edit("        moments.update(f1, labels)", after="f1, f2 =", within="def train("),
            Edit(
                '    print(ncscope.measure_moments(moments)["nc1"])',
                before="return losses.avg",
                within="def train(",
            ),
        ),
        "--model resnet18 --epochs 2 --batch_size 32 --num_workers 2",
    ),
    Script(
        "skorch-dev/skorch",
        "examples/benchmarks/mnist.py",
        (
            IMPORT,
            Edit(
                "    batches = net.get_iterator(net.get_dataset(X_test, y_test))",
                after="net.fit(X_train, y_train)",
            ),
            Edit(
                '    print(ncscope.measure_model(net.module_, batches)["nc1"])',
                after="batches = net.get_iterator(",
            ),
        ),
        "--device cpu --num_samples 160",
        settings={
            "examples/benchmarks/mnist.py": {
                "MAX_EPOCHS = 12": "MAX_EPOCHS = 2",
                "assert np.isclose(": "np.isclose(",
                ', "Scores are not close enough."': "",
                ', "Times are not close enough."': "",
            }
        },
    ),
    Script(
        "Lightning-AI/pytorch-lightning",
        "examples/pytorch/basics/backbone_image_classifier.py",
        (
            Edit(
                "from ncscope.integrations.lightning import NeuralCollapseCallback",
                before="import torch",
            ),
            Edit(
                "    cli.trainer.callbacks.append(NeuralCollapseCallback())",
                before="cli.trainer.fit(",
            ),
        ),
        "--trainer.max_epochs=2 --trainer.limit_train_batches=3 --trainer.limit_val_batches=3 "
        "--trainer.limit_test_batches=1 --trainer.limit_predict_batches=1 "
        "--trainer.accelerator=cpu --data.batch_size=32",
    ),
    Script(
        "Lightning-AI/pytorch-lightning",
        "examples/fabric/image_classifier/train_fabric.py",
        (
            IMPORT,
            Edit(
                "        with torch.no_grad(), ncscope.watch(model) as seen:",
                instead="with torch.no_grad():",
                within="# TESTING LOOP",
            ),
            Edit(
                "                seen.labels(target)",
                after="output = model(data)",
                within="# TESTING LOOP",
            ),
            Edit(f"        {REPORT}", before="# all_gather is used", within="# TESTING LOOP"),
        ),
        "--epochs 2 --batch-size 32",
    ),
    Script(
        "huggingface/accelerate",
        "examples/cv_example.py",
        (
            IMPORT,
            Edit("        seen = ncscope.watch(model)", after="num_elems = 0"),
            Edit(
                "            with torch.no_grad(), seen:",
                instead="with torch.no_grad():",
                within="num_elems = 0",
            ),
            Edit(
                '                seen.labels(batch["label"])',
                after="outputs = model(inputs)",
                within="num_elems = 0",
            ),
            Edit(f"        {REPORT}", before="eval_metric = accurate"),
        ),
        "--data_dir made --cpu",
        settings={
            "examples/cv_example.py": {
                "pretrained=True": "pretrained=False",
                '"num_epochs": 3': '"num_epochs": 2',
                '"batch_size": 64, "image_size": 224': '"batch_size": 16, "image_size": 64',
            }
        },
        make=lambda folder: make_images(folder / "examples" / "made", 60, 64, flat=True),
    ),
)


def edit(script: Script, folder: Path, *, ours: bool) -> None:
    """Make a copy of a repository ready to run.

    Args:
        script: The script.
        folder: The copy.
        ours: Add our lines if True.
    """
    for name, texts in script.settings.items():
        text = (folder / name).read_text()
        for old, new in texts.items():
            if old not in text:
                message = f"{script.name} has no {old!r} in {name}"
                raise ValueError(message)
            text = text.replace(old, new)
        (folder / name).write_text(text)
    if ours:
        lines = (folder / script.file).read_text().splitlines()
        for each in script.edits:
            lines = each.apply(lines)
        (folder / script.file).write_text("\n".join(lines) + "\n")
    script.make(folder)


# What follows runs in the process of a script.


class MadeImages(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Stand-in for the sets that torchvision downloads: ten classes, made when asked."""

    shape: tuple[int, ...] = (32, 32, 3)
    sizes = (96, 64)

    def __init__(
        self, root: Any, train: bool = True, transform: Any = None, download: bool = False
    ) -> None:
        self.train, self.transform = train, transform

    def __len__(self) -> int:
        return self.sizes[0 if self.train else 1]

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        if index >= len(self):
            raise IndexError(index)
        generator = np.random.default_rng(2 * index + self.train)
        pixels = generator.integers(0, 100, self.shape) + 15 * (index % 10)
        image: Any = Image.fromarray(pixels.astype(np.uint8))
        return image if self.transform is None else self.transform(image), index % 10


class MadeDigits(MadeImages):
    """Stand-in for MNIST."""

    shape = (28, 28)


class ManyDigits(MadeDigits):
    """Stand-in of the length that a split of MNIST needs."""

    sizes = (60_000, 10_000)


class Logger:
    """Stand-in for a logger that is not installed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def log_value(self, *args: Any) -> None:
        """Log nothing."""


def stand_in(script: Script) -> None:
    """Replace what a script would download, and CUDA for those that want nothing else."""
    import torchvision

    digits = ManyDigits if "backbone" in script.file else MadeDigits
    torchvision.datasets.MNIST = digits
    torchvision.datasets.CIFAR10 = torchvision.datasets.CIFAR100 = MadeImages
    if script.repository == "kuangliu/pytorch-cifar":  # its progress bar asks the terminal
        os.popen = lambda *args: __import__("io").StringIO("24 100")  # type: ignore[assignment]
    if script.repository == "HobbitLong/SupContrast":
        module = types.ModuleType("tensorboard_logger")
        vars(module)["Logger"] = Logger
        sys.modules["tensorboard_logger"] = module
        for kind in (Tensor, nn.Module):
            kind.cuda = lambda self, *args, **kwargs: self  # type: ignore[assignment, method-assign]
    if script.repository == "skorch-dev/skorch":
        import sklearn.datasets

        images = [np.asarray(MadeDigits("", True)[i % 96][0]).reshape(-1) for i in range(200)]
        labels = np.array([str(i % 10) for i in range(200)])
        made = types.SimpleNamespace(data=np.stack(images), target=labels)
        sklearn.datasets.fetch_openml = lambda *args, **kwargs: made


class Recorder:
    """The modules that optimisers train, found when an optimiser is made."""

    def __init__(self) -> None:
        self.modules: list[nn.Module] = []
        make = torch.optim.Optimizer.__init__

        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
            owners = [
                each
                for each in gc.get_objects()
                if isinstance(each, nn.Module) and trained & {id(p) for p in each.parameters()}
            ]
            self.modules.append(max(owners, key=lambda each: len(each.state_dict())))

        torch.optim.Optimizer.__init__ = init  # type: ignore[method-assign]

    def digest(self) -> str:
        """Return a digest of all weights and buffers."""
        digest = hashlib.sha256()
        for module in self.modules:
            for name, value in module.state_dict().items():
                digest.update(name.encode())
                digest.update(value.detach().cpu().contiguous().view(-1).numpy().tobytes())
        return digest.hexdigest()


def digest_random_states() -> str:
    """Return a digest of the states of torch, NumPy and Python."""
    numbers = np.random.get_state()  # noqa: NPY002
    parts = (torch.get_rng_state().numpy().tobytes(), numbers[1].tobytes(), str(numbers[2:]))
    text = "".join(str(part) for part in (*parts, random.getstate()))
    return hashlib.sha256(text.encode()).hexdigest()


def drive(script: Script, folder: Path, out: Path) -> None:
    """Run a script in this process, and write what it leaves behind.

    Args:
        script: The script.
        folder: Copy of the repository.
        out: File to write.
    """
    torch.set_num_threads(1)
    stand_in(script)
    recorder = Recorder()
    path = folder / script.file
    # Some scripts set no seed; the runs must be the same all the same.
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    os.chdir(path.parent)
    sys.argv = [path.name, *script.arguments.split()]
    sys.path.insert(0, str(path.parent))
    start = time.process_time()
    runpy.run_path(path.name, run_name="__main__")
    seconds = time.process_time() - start
    found = {
        "weights": recorder.digest(),
        "random": digest_random_states(),
        "seconds": seconds,
        "trained": len(recorder.modules),
    }
    start = time.process_time()
    import ncscope

    for name in ncscope.__all__:
        getattr(ncscope, name)
    found["import"] = time.process_time() - start
    out.write_text(json.dumps(found))


# What follows runs in the process of the command.


def run(script: Script, source: Path, *, ours: bool) -> tuple[dict[str, Any] | None, str]:
    """Run a script in a process of its own.

    Returns:
        What the run left behind, None if it failed; and the end of what it printed.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "copy"
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns(".git"))
        out = Path(made) / "out.json"
        edit(script, folder, ours=ours)
        paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        environment |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline"}
        names = [script.repository, script.file, script.arguments]
        ended = subprocess.run(
            [sys.executable, __file__, "--drive", *names, str(folder), str(out)],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        said = ended.stdout + ended.stderr
        return (json.loads(out.read_text()) if out.exists() else None), said


def measured(said: str) -> list[str]:
    """Return the values of NC1 among what a run with our lines printed."""
    return re.findall(r"^(?:\d+\.\d+(?:e[-+]\d+)?|nan|inf)$", said, re.MULTILINE)


def rows(folder: Path, only: str) -> Iterator[str]:
    """Yield the rows of the table."""
    for script in SCRIPTS:
        source = folder / script.repository
        if only not in script.name or not (source / script.file).exists():
            continue
        without, said = run(script, source, ours=False)
        if without is None:
            print(said[-3000:], file=sys.stderr)
            yield f"| {script.name} | {len(script.edits)} | does not run here without us | | | |"
            continue
        followed, said = run(script, source, ours=True)
        # A callback that fails leaves the run alone, with a warning; the others print NC1.
        prints = any("print(" in each.line for each in script.edits)
        if followed is None or "MeasurementWarning" in said or (prints and not measured(said)):
            print(said[-3000:], file=sys.stderr)
            yield f"| {script.name} | {len(script.edits)} | no | | | |"
            continue
        assert followed["trained"] == without["trained"] > 0
        same = ["yes" if followed[k] == without[k] else "no" for k in ("weights", "random")]
        cost = followed["seconds"] - without["seconds"]
        cost, of = cost - without["import"], without["seconds"]
        count = f"{len(script.edits)}{'' if len(script.edits) <= MOST_LINES else ' (too many)'}"
        print(script.name, measured(said), without, followed, file=sys.stderr)
        yield (
            f"| {script.name} | {count} | yes | {same[0]} | {same[1]} | "
            f"{cost:.1f} beside {of:.1f} |"
        )


def main() -> None:
    """Run the scripts of a folder, and print the table."""
    if sys.argv[1:2] == ["--drive"]:
        *parts, folder, out = sys.argv[2:]
        drive(Script(parts[0], parts[1], (), parts[2]), Path(folder), Path(out))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of checkouts, OWNER/NAME")
    parser.add_argument("--only", default="", help="run the scripts whose name has this word")
    arguments = parser.parse_args()
    print("| script | lines | works | weights equal | random states equal | seconds |")
    print("|---|---|---|---|---|---|")
    for row in rows(arguments.folder, arguments.only):
        print(row, flush=True)


if __name__ == "__main__":
    main()
