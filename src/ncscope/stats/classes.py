"""Labels of a batch, checked and compacted once for all layers."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from ncscope.array_checks import check_range
from ncscope.devices import is_asynchronous, move_to
from ncscope.memory import check_memory

_MANY = 2**26  # classes up to which the system is not asked for its free memory


@dataclass(frozen=True)
class BatchClasses:
    """Classes of the samples of a batch.

    Attributes:
        labels: Class of each sample, 0..K-1.
        present: Classes that occur, ascending.
        counts: Number of samples of each class that occurs.
        index: Index into ``present`` of each sample.

    Example:
        >>> classes = BatchClasses.from_labels(torch.tensor([4, 1, 4]), num_classes=5)
        >>> classes.present.tolist(), classes.counts.tolist(), classes.index.tolist()
        ([1, 4], [1, 2], [1, 0, 1])
    """

    labels: Int[Tensor, " n"]
    present: Int[Tensor, " p"]
    counts: Int[Tensor, " p"]
    index: Int[Tensor, " n"]

    @classmethod
    def from_labels(
        cls,
        labels: Int[Tensor, " n"],
        num_classes: int,
        *,
        of_classifier: bool = False,
        has_ignore_index: bool = False,
    ) -> "BatchClasses":
        """Check the range of labels and compact them.

        Labels on an accelerator cost two waits, labels on the CPU none.

        Args:
            labels: Class of each sample, int64.
            num_classes: Number of classes.
            of_classifier: True if a classifier's weight fixes the number of classes.
            has_ignore_index: True if the user's function has the option ``ignore_index``.

        Raises:
            InputError: If a label is out of range, or the classes do not fit into memory.
        """
        if len(labels):
            bad = True
            if is_asynchronous(labels.device):
                # A label out of range would end the process on an accelerator, so it is read at
                # once. Only to name it costs more waits.
                least, largest = torch.stack(labels.aminmax()).tolist()
                bad = least < 0 or largest >= num_classes
            if bad:
                check_range(
                    labels,
                    num_classes,
                    of_classifier=of_classifier,
                    has_ignore_index=has_ignore_index,
                )
        if num_classes > _MANY and labels.device.type == "cpu":
            fix = "check num_classes; a label may be an identifier and no class"
            check_memory(16 * num_classes, f"the counts of {num_classes:,} classes", fix)
        counts = torch.zeros(num_classes, dtype=torch.int64, device=labels.device)
        counts.index_add_(0, labels, torch.ones_like(labels))  # bincount would wait twice
        present = torch.nonzero(counts).squeeze(1)
        index = torch.empty_like(counts)
        index[present] = torch.arange(len(present), device=labels.device)
        return cls(labels, present, counts[present], index[labels])

    def to(self, device: torch.device) -> "BatchClasses":
        """Return the classes on a device, without waiting for the copies where possible."""
        if self.labels.device == device:
            return self
        parts = (self.labels, self.present, self.counts, self.index)
        return BatchClasses(*(move_to(part, device) for part in parts))

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.labels)
