"""A data set cut into shards of uneven size, as arrays and as files, for the tests of shards."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

K, D = 4, 6
SIZES = (50, 0, 1, 120, 33, 70)


@dataclass(frozen=True)
class Cut:
    """Samples, their classifier, and the samples by shard."""

    parts: list[tuple[np.ndarray, np.ndarray]]
    weight: np.ndarray
    bias: np.ndarray

    @property
    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        features, labels = zip(*self.parts, strict=True)
        return np.concatenate(features), np.concatenate(labels)


def cut(sizes: tuple[int, ...] = SIZES, *, scale: float = 1.0, seed: int = 0) -> Cut:
    rng = np.random.default_rng(seed)
    weight, bias = rng.normal(size=(K, D)), rng.normal(size=K)
    parts = []
    for size in sizes:
        labels = rng.integers(0, K, size)
        features = scale * (weight[labels] + 0.7 * rng.normal(size=(size, D)))
        parts.append((features, labels))
    return Cut(parts, weight, bias)


def save_npz(path: Path, features: np.ndarray, labels: np.ndarray) -> Path:
    np.savez(path, features=features, labels=labels)
    return path


def save_safetensors(path: Path, features: np.ndarray, labels: np.ndarray) -> Path:
    save_file({"features": torch.tensor(features), "labels": torch.tensor(labels)}, path)
    return path


def save_parquet(path: Path, features: np.ndarray, labels: np.ndarray, **options) -> Path:
    import pyarrow
    from pyarrow import parquet

    flat = pyarrow.array(features.reshape(-1))
    columns = {
        "name": [str(row) for row in range(len(labels))],
        "features": pyarrow.FixedSizeListArray.from_arrays(flat, features.shape[1]),
        "labels": labels,
    }
    parquet.write_table(pyarrow.table(columns), path, **{"row_group_size": 16} | options)
    return path


WRITERS = {".npz": save_npz, ".safetensors": save_safetensors, ".parquet": save_parquet}


def save_shards(
    folder: Path, samples: Cut, suffixes: tuple[str, ...] = tuple(WRITERS)
) -> list[str]:
    """Files of the shards, of each kind in turn."""
    files = []
    for index, part in enumerate(samples.parts):
        suffix = suffixes[index % len(suffixes)]
        files.append(str(WRITERS[suffix](folder / f"{index:02}{suffix}", *part)))
    return files


def largest_difference(one, other) -> float:
    """Largest difference of two reports' common values, by their size if that is above 1."""
    both = [key for key in one if one[key] == one[key]]
    return max(abs(one[key] - other[key]) / max(1, abs(other[key])) for key in both)
