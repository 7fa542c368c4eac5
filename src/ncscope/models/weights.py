"""Weights of a model in the content of a saved file, whatever is saved beside and around them."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from ncscope.errors import InputError, list_names

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class FileWeights:
    """Weights that were found in a file.

    Attributes:
        tensors: Weights by their names in the file.
        file: Base name of the file.
        key: Dotted path of the entry that holds the weights; empty if the whole file does.
        notes: Sentences on the file, such as missing checksums.
    """

    tensors: Weights
    file: str = ""
    key: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelWeights:
    """Weights by their names in the model.

    Attributes:
        tensors: Weights by name.
        prefix: Text that began every name in the file, such as ``module.``.
        had_wrappers: True if names of wrappers inside of the names were removed.
        unused: Names in the file without the prefix, which are no weights of the model.
        head: Name of the head in the file, and in the model, if they differ; else empty.
    """

    tensors: Weights
    prefix: str = ""
    had_wrappers: bool = False
    unused: tuple[str, ...] = ()
    head: tuple[str, str] | tuple[()] = ()


_USUAL = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "net",
    "network",
    "module",
    # Lightning's WeightAveraging writes the average as `state_dict`, and the weights here.
    "current_model_state",
)
"""Names of the entry that holds the weights, in the files of training libraries and scripts."""

_AVERAGE = re.compile(r"(^|[._])(ema|swa|averaged?)([._]|$)|(^|\.)n_averaged$")
"""Part of a name that tells of a running average: ``state_dict_ema``, ``model_ema``."""

_DEEPEST = 10


def find_weights(content: Mapping[str, Any], file: str = "the file", key: str = "") -> FileWeights:
    """Find the weights of a model in a saved mapping.

    A mapping of tensors is a model's weights. In a checkpoint the weights are the entry that holds
    tensors and has a usual name (`_USUAL`), or the only entry that holds tensors. The states of
    optimisers are passed over, and so are running averages (EMA) if there is anything else. A
    mapping that directly holds tensors under names with dots is not searched further. The extra
    states of modules, which may be anything, are left out.

    Args:
        content: Content of the file.
        file: Base name of the file, for messages.
        key: Dotted path of the entry to take, for example ``state_dict_ema`` or ``models.student``.
            Its last part may also be the beginning of names, as ``teacher`` of ``teacher.fc.bias``.

    Raises:
        InputError: If there are no weights or several, or no such entry; the message lists the
            entries. Also if the mapping holds anything but named tensors.

    Example:
        >>> import torch
        >>> found = find_weights({"epoch": 3, "state_dict": {"fc.weight": torch.ones(2, 3)}})
        >>> found.key, list(found.tensors)
        ('state_dict', ['fc.weight'])
    """
    path = [key] if key else []
    if key:
        content = _find_entry(content, key, file)
    for _ in range(_DEEPEST):
        # Torch names so what a module's `get_extra_state` returned, which may be anything.
        content = {
            name: value
            for name, value in content.items()
            if not (isinstance(name, str) and name.endswith("_extra_state"))
        }
        entries = _entries_with_tensors(content)
        # Checkpoints hold tensors of their own, but under names without a dot.
        holds_weights = any(
            isinstance(name, str) and "." in name and isinstance(value, Tensor)
            for name, value in content.items()
        )
        if not entries or holds_weights or _is_optimizer(content):
            _check_weights(content, file)
            return FileWeights(dict(content), file, ".".join(path))
        plain = [name for name in entries if not _AVERAGE.search(name)]
        choice = [name for name in plain if name in _USUAL] or plain or list(entries)
        if len(choice) > 1:
            raise InputError(
                expected=f"weights of one model in {file}",
                found=f"weights under {_quote_names('.'.join([*path, name]) for name in choice)}",
                fix="choose one with --weights-key",
            )
        (name,) = choice
        path.append(name)
        content = content[name]
    found, fix = f"more than {_DEEPEST} nested mappings", "save model.state_dict()"
    raise InputError(expected=f"weights by name in {file}", found=found, fix=fix)


def _find_entry(content: Mapping[str, Any], key: str, file: str) -> Mapping[str, Any]:
    """Return the entry at a dotted path; names of entries may contain dots themselves."""
    whole, rest = content, key
    while rest:
        parts = rest.split(".")
        starts = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
        name = next((start for start in starts if isinstance(content.get(start), Mapping)), None)
        if name is None:
            entries = {n: v for n, v in content.items() if isinstance(n, str)}
            beginning = {n: v for n, v in entries.items() if n.startswith(f"{rest}.")}
            if not beginning:
                raise InputError(
                    expected=f"weights under {key!r} in {file}",
                    found=f"weights under {_quote_names(_entries_with_tensors(whole))}",
                    fix="pass one of these keys, or leave the key out",
                )
            return beginning
        content, rest = content[name], rest[len(name) + 1 :]
    return content


def _entries_with_tensors(content: Mapping[Any, Any]) -> dict[str, Mapping[Any, Any]]:
    """Return the entries that are mappings and hold tensors, without the states of optimisers."""
    return {
        name: value
        for name, value in content.items()
        if isinstance(name, str) and isinstance(value, Mapping) and _holds_tensors(value)
    }


def _holds_tensors(content: Mapping[Any, Any]) -> bool:
    """Return whether a mapping holds a tensor at any depth; mappings may contain themselves."""
    if "param_groups" in content:  # the state of an optimiser
        return False
    visited, to_visit = {id(content)}, [content]
    while to_visit:
        for value in to_visit.pop().values():
            if isinstance(value, Tensor):
                return True
            if isinstance(value, Mapping) and id(value) not in visited:
                visited.add(id(value))
                to_visit.append(value)
    return False


def _is_optimizer(value: Any) -> bool:
    return isinstance(value, Mapping) and {"state", "param_groups"} <= value.keys()


def _check_weights(content: Mapping[Any, Any], file: str) -> None:
    fix = "save model.state_dict()"
    states = [name for name, value in content.items() if _is_optimizer(value)]
    if states or _is_optimizer(content):
        under = f" under {_quote_names(states)}" if states else ""
        found = f"the state of an optimiser{under}, and no weights"
        fix = "pass the file of the model's weights, which training writes beside it"
        raise InputError(expected=f"weights by name in {file}", found=found, fix=fix)
    if not content:
        raise InputError(expected=f"weights by name in {file}", found="none", fix=fix)
    for name, value in content.items():
        if not (isinstance(name, str) and isinstance(value, Tensor)):
            key = repr(name)[:80]
            found = f"something else under {key}" if isinstance(name, str) else f"{key} as a name"
            raise InputError(expected=f"weights by name in {file}", found=found, fix=fix)


_WRAPPERS = re.compile(r"(?<=\.)(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
"""Names that torch.compile, sharding and checkpointing give to what they wrap, inside of names."""


def match_names(weights: Weights, names: Collection[str]) -> ModelWeights:
    """Rename weights to their names in the model, by removing one prefix from all of them.

    The prefix is the one under which most names of the model occur: ``module.`` of
    ``DistributedDataParallel``, ``_orig_mod.`` of ``torch.compile``, ``model.`` of an attribute of
    a LightningModule. Names without the prefix, such as those of a loss, are not used.

    Args:
        weights: Weights by their names in the file.
        names: Names of the model's weights.

    Raises:
        InputError: If several models have these names in the file, under different prefixes.

    Example:
        >>> import torch
        >>> fitted = match_names({"module.fc.bias": torch.ones(2)}, ["fc.bias"])
        >>> fitted.prefix, list(fitted.tensors)
        ('module.', ['fc.bias'])
    """
    inner = {_WRAPPERS.sub("", name): value for name, value in weights.items()}
    wrapped = len(inner) == len(weights) and inner.keys() != weights.keys()
    weights = inner if wrapped else weights
    prefix = _find_prefix(weights, names)
    tensors = {
        name.removeprefix(prefix): value
        for name, value in weights.items()
        if name.startswith(prefix)
    }
    unused = tuple(name for name in weights if not name.startswith(prefix))
    return ModelWeights(tensors, prefix, wrapped, unused)


def match_head(
    fitted: ModelWeights, weights: Weights, shapes: Mapping[str, tuple[int, ...]]
) -> ModelWeights:
    """Rename a head that has another name in the file, such as ``head`` for ``fc``.

    Renamed is one linear layer, and only if nothing else can be meant: the model lacks all entries
    of this layer alone, one layer of the file has entries of these shapes, no other matrix of the
    file that the model has no place for has the shape of the weight, such as that of a loss, a
    queue or an average, and no entry of the file is then left over under the prefix. All else fits
    by name, so that the two are the same layer.

    Args:
        fitted: Weights by their names in the model.
        weights: The same weights by their names in the file.
        shapes: Shapes of the weights of the model, by name.

    Returns:
        The weights as they are if no head is renamed.

    Example:
        >>> import torch
        >>> file = {"conv.weight": torch.ones(9), "head.weight": torch.ones(2, 3)}
        >>> shapes = {"conv.weight": (9,), "fc.weight": (2, 3)}
        >>> match_head(match_names(file, shapes), file, shapes).head
        ('head', 'fc')
    """
    lacking = {name: shape for name, shape in shapes.items() if name not in fitted.tensors}
    lacking = {n: s for n, s in lacking.items() if not n.endswith("num_batches_tracked")}
    spare = {name: value for name, value in fitted.tensors.items() if name not in shapes}
    others = {name: weights[name] for name in fitted.unused if name in weights}
    layers = {name.rpartition(".")[0] for name in lacking}
    wanted = {name.rpartition(".")[2]: shape for name, shape in lacking.items()}
    if len(layers) != 1 or len(wanted.get("weight", ())) != 2 or wanted.keys() - {"weight", "bias"}:
        return fitted
    whole = {name for name in shapes if name.rpartition(".")[0] in layers}
    matrices = [v for v in (spare | others).values() if tuple(v.shape) == wanted["weight"]]
    if whole != lacking.keys() or len(matrices) != 1:
        return fitted
    candidates: dict[str, dict[str, Tensor]] = {}
    for name, value in (spare | others).items():
        layer, _, inner = name.rpartition(".")
        candidates.setdefault(layer, {})[inner] = value
    found = [
        layer
        for layer, entries in candidates.items()
        if {inner: tuple(value.shape) for inner, value in entries.items()} == wanted
    ]
    if len(found) != 1:
        return fitted
    (layer,), (source,) = layers, found
    if _AVERAGE.search(source) and not _AVERAGE.search(fitted.prefix):
        return fitted  # the head of other weights
    names = {_join(source, inner): _join(layer, inner) for inner in wanted}
    if spare.keys() - names.keys():
        return fitted
    tensors = {name: value for name, value in fitted.tensors.items() if name not in names}
    tensors |= {names[name]: value for name, value in (spare | others).items() if name in names}
    unused = tuple(name for name in fitted.unused if name not in names)
    return replace(fitted, tensors=tensors, unused=unused, head=(source, layer))


def _join(layer: str, inner: str) -> str:
    return f"{layer}.{inner}" if layer else inner


def _find_prefix(found: Iterable[str], names: Collection[str]) -> str:
    """Return the prefix under which most names of a model occur; empty if none occurs."""
    expected = set(names)
    most_dots = max((name.count(".") for name in expected), default=0)
    counts: Counter[str] = Counter()
    for name in found:
        start = len(name)
        for _ in range(most_dots + 1):
            start = name.rfind(".", 0, max(start, 0))
            if name[start + 1 :] in expected:
                counts[name[: start + 1]] += 1
            if start < 0:
                break
    most = max(counts.values(), default=0)
    best = [prefix for prefix, count in counts.items() if count == most]
    if not best or "" in best:
        return ""
    best = [prefix for prefix in best if not _AVERAGE.search(prefix)] or best
    if len(best) > 1:
        raise InputError(
            expected="weights of one model",
            found=f"weights under {_quote_names(prefix.rstrip('.') for prefix in best)}",
            fix="choose one with --weights-key",
        )
    return best[0]


def weights_notes(saved: FileWeights, fitted: ModelWeights) -> tuple[str, ...]:
    """Return sentences on what was done to the weights of a file, for the reader of a measurement.

    Args:
        saved: Weights that were found in the file.
        fitted: The same weights under their names in the model.
    """
    notes = list(saved.notes)
    if any(map(_AVERAGE.search, (saved.key, fitted.prefix, *fitted.unused))):
        under = f" under {saved.key!r}" if saved.key else ""
        notes.append(f"weights: {saved.file} holds a running average (EMA){under}")
    if fitted.prefix:
        notes.append(f"weights: prefix {fitted.prefix!r} removed")
    if fitted.had_wrappers:
        notes.append("weights: names of wrappers, such as '_orig_mod.', removed within names")
    if fitted.head:
        source, layer = fitted.head
        notes.append(
            f"weights: {source!r} taken as {layer!r}, the only layers without a partner, of one "
            "shape"
        )
    if fitted.unused:
        notes.append(f"weights: without this prefix, and not used: {_quote_names(fitted.unused)}")
    return tuple(notes)


def _quote_names(names: Iterable[str]) -> str:
    """Return names as text; long names and long lists are cut."""
    return list_names(map(repr, names))
