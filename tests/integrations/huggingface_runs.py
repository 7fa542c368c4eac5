"""A run of transformers' trainer, as a program for torch's launcher."""

import json
import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import default_data_collator

from ncscope import AlertWarning
from ncscope.integrations.huggingface import NeuralCollapseTrainerCallback
from ncscope.integrations.recording import MeasurementWarning

from .test_huggingface import images, run, vision


class Wrong(torch.nn.Module):
    """Passes labels that no class has to the classifier on the second process."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = vision()

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict:
        out = self.inner(pixel_values, labels=labels)
        if dist.get_rank() == 1 and not self.training:
            labels.add_(100)
        return {"loss": out.loss, "logits": out.logits}


def main(out: Path) -> None:
    torch.set_num_threads(1)
    found = {}
    for kind in (vision, Wrong):
        weights = []
        for watched in (False, True):
            called = []
            alert = {"nc1 above 0": None, "nc1 > 0": lambda each, to=called: to.append(each.step)}
            callback = NeuralCollapseTrainerCallback(groups=["nc1"], layers=[], alert=alert)
            callbacks = [callback] if watched else []
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                trainer = run(
                    out.parent, kind, images, default_data_collator, callbacks, ddp_backend="gloo"
                )
                trainer.train()
            values = trainer.model.state_dict().values()
            weights.append(torch.cat([each.flatten() for each in values]))
        found[kind.__name__] = {
            "same": bool(torch.equal(*weights)),
            "logged": [log.get("eval_nc/nc1") for log in trainer.state.log_history],
            "samples": [each.model_record.layers[-1].num_samples for each in callback.history],
            "alerts": sum(each.category is AlertWarning for each in caught),
            "calls": called,
            "warnings": [str(w.message) for w in caught if w.category is MeasurementWarning],
        }
    out.with_suffix(f".{dist.get_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    dist.barrier()
    # One run in ten aborts in a thread of torch while the interpreter ends, without our callback
    # too, and after the process group was destroyed.
    os._exit(0)
