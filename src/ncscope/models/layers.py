"""Layers by name: exact names, patterns, and the repeated blocks of a network."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

import torch
from torch import nn

from ncscope.errors import InputError
from ncscope.models.wrappers import (
    is_scripted,
    parameter_shapes,
    unwrap_fully,
    walk_modules,
)

# Least share of a stage's weights that lies in its chain of blocks; the rest may be a downsampling
# layer. Stages of ConvNeXt and Swin have more than 0.9, a MobileViT block (convolutions around a
# short transformer) about 0.6.
STAGE_SHARE = 0.75

CHAINS = (nn.Sequential, nn.ModuleList)

NamedModule = tuple[str, nn.Module]
Calls = Mapping[nn.Module, int]


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """Return the submodule of a name; the model itself for the empty name.

    Args:
        model: Any module.
        name: Name as in ``model.named_modules()``, or an alias of a shared module.

    Raises:
        InputError: If there is no such module; the message names the closest ones.

    Example:
        >>> find_layer(nn.Sequential(nn.Linear(3, 2)), "0")
        Linear(in_features=3, out_features=2, bias=True)
    """
    modules: dict[str, nn.Module] = dict(walk_modules(model, remove_duplicate=False))
    if name not in modules:
        raise _no_layer_error(name, list(modules))
    return modules[name]


def match_layers(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Return the names of the submodules that match any of the patterns, in the model's order.

    Args:
        model: Any module.
        patterns: Names with wildcards ``*``, ``?`` and ``[...]``. A wildcard does not match a dot,
            like a slash in a file path: ``layer1.*`` matches the blocks of ``layer1``, but not
            their submodules.

    Raises:
        InputError: If a pattern matches nothing; the message names the closest layers.

    Example:
        >>> match_layers(nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.ReLU())), ["1.*", "0"])
        ['0', '1.0']
    """
    modules = [item for item in walk_modules(model, remove_duplicate=False) if item[0]]
    names = [name for name, _ in modules]
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            raise _no_layer_error(pattern, names)
    first: dict[nn.Module, str] = {}
    for name, module in modules:
        if any(_matches(name, pattern) for pattern in patterns):
            first.setdefault(module, name)
    return list(first.values())


def find_repeated_blocks(model: nn.Module, calls: Calls | None = None) -> list[str]:
    """Return the names of the repeated blocks of a network, which are its default layers.

    Blocks are found from the structure alone. A *chain* is an ``nn.Sequential``, an
    ``nn.ModuleList``, or a module whose children are several blocks of one class; the search
    continues inside chains. A *block* is any other module with children that holds at least two
    weight matrices or kernels and whose class occurs at least twice; the outermost blocks are
    returned. Classes with at least three quarters of their weights in chains of such modules are
    stages; for a stage the members of its chains are returned instead. In a network without such
    blocks, a block that a forward pass calls several times, such as a layer with shared weights, is
    returned. If there is none either, modules with one weight matrix count as blocks.

    The function does not check that a block is residual: it also finds Inception modules, which do
    not add their input. If the structure misleads, choose layers with `match_layers`.

    Args:
        model: Any module.
        calls: Number of calls of each module in a forward pass, if known. A module without a call
            is no block; the search continues inside it.

    Returns:
        Names in the model's order, one name for each module; empty for a plain chain of layers,
        like VGG.

    Example:
        >>> from ncscope.models.networks.residual import ResidualNet
        >>> find_repeated_blocks(ResidualNet(4, 8, depth=2, num_classes=3))
        ['blocks.0', 'blocks.1']
    """
    once = {
        module: 1
        for module in model.modules()
        if not is_scripted(module) and (calls is None or module in calls)
    }
    shapes = parameter_shapes(model)
    # Blocks by their number; else one block that is called several times; else single layers.
    for least, counts in ((2, once), (2, calls or once), (1, once)):
        blocks = _find_outermost_repeated(model, least, _ModuleFacts(counts, shapes))
        if blocks:
            order = {module: index for index, module in enumerate(model.modules())}
            return [name for name, module in sorted(blocks, key=lambda block: order[block[1]])]
    return []


def _no_layer_error(name: str, names: list[str]) -> InputError:
    inside = [known for known in names if known.endswith(f".{name}")]
    close = inside[:3] or get_close_matches(name, names, n=3, cutoff=0.4)
    fix = f"did you mean {' or '.join(map(repr, close))}?" if close else "see model.named_modules()"
    return InputError(expected="the name of a layer of the model", found=repr(name), fix=fix)


def _matches(name: str, pattern: str) -> bool:
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


@dataclass(frozen=True)
class _ModuleFacts:
    """Number of calls of each module, and the shapes of the parameters that each has itself."""

    calls: Calls
    shapes: Mapping[nn.Module, Mapping[object, torch.Size]]

    def matrices(self, module: nn.Module) -> int:
        """Count weight matrices and kernels, of submodules too."""
        return sum(len(shape) > 1 for shape in self._shapes(module))

    def size(self, module: nn.Module) -> int:
        """Count weights, of submodules too."""
        return sum(shape.numel() for shape in self._shapes(module))

    def _shapes(self, module: nn.Module) -> Iterable[torch.Size]:
        shapes: dict[object, torch.Size] = {}
        for part in module.modules():  # by key: a shared parameter counts once
            shapes |= self.shapes[part]
        return shapes.values()


def _find_outermost_repeated(
    model: nn.Module, least: int, facts: _ModuleFacts
) -> list[NamedModule]:
    level = [("", unwrap_fully(model))]
    while level:
        members = [
            member for name, module in level for member in _members(name, module, least, facts)
        ]
        by_class: dict[type, dict[nn.Module, str]] = defaultdict(dict)
        for name, module in members:
            by_class[type(module)].setdefault(module, name)
        count = facts.calls.__getitem__
        repeated = [alike for alike in by_class.values() if sum(map(count, alike)) > 1]
        if repeated:
            return [
                block for alike in repeated for block in _find_blocks_of_class(alike, least, facts)
            ]
        level = members
    return []


def _find_blocks_of_class(
    alike: Mapping[nn.Module, str], least: int, facts: _ModuleFacts
) -> list[NamedModule]:
    """Return the modules of one class; if they are stages, return the blocks in them."""
    chained = {
        block: path
        for module, name in alike.items()
        for child, container in _children(module)
        if _is_chain(container)
        for path, block in _members(f"{name}.{child}", container, least, facts)
    }
    share = sum(map(facts.size, chained)) / sum(map(facts.size, alike))
    blocks = alike if share < STAGE_SHARE else chained
    return [(name, block) for block, name in blocks.items()]


def _members(
    name: str, module: nn.Module, least: int, facts: _ModuleFacts
) -> Iterator[NamedModule]:
    """Yield children that could be blocks; search inside chains and modules without a call."""
    for child_name, child in _children(module):
        path = f"{name}.{child_name}" if name else child_name
        if _is_chain(child) or child not in facts.calls:
            yield from _members(path, child, least, facts)
        elif _is_composite(child) and facts.matrices(child) >= least:
            yield path, child


def _children(module: nn.Module) -> list[NamedModule]:
    """Return the children of a module without their wrappers."""
    return [(name, unwrap_fully(child)) for name, child in module.named_children()]


def _is_chain(module: nn.Module) -> bool:
    """Return whether a module only runs its children in order; a ``ModuleDict`` does not."""
    if isinstance(module, CHAINS):
        return True
    children = [child for _, child in _children(module)]
    alike = len(children) > 1 and len({type(child) for child in children}) == 1
    return alike and _is_composite(children[0]) and not isinstance(module, nn.ModuleDict)


def _is_composite(module: nn.Module) -> bool:
    return any(True for _ in module.children()) and not isinstance(module, CHAINS)
