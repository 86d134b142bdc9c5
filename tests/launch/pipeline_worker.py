"""One process of a pipeline under torch.distributed.pipelining, run by a schedule file.

Arguments: a JSON file with the module names of all stages, the schedule file, the numbers of ranks
and micro-batches, and a folder. Writes what it did, and its gradients, into the folder.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from tests.launch.tiny_model import Tiny, batch, kept, loss_of


def recorded(stage: PipelineStage, log: list[str]) -> PipelineStage:
    """The stage, which writes every operation into the log as the schedule file does."""
    kinds = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}

    def logged(method: Any, kind: str) -> Any:
        def run(number: int, *args: Any, full_backward: bool = True, **options: Any) -> Any:
            log.append(f"{stage.stage_index}{kind if full_backward else 'I'}{number}")
            told = {"full_backward": full_backward} if kind == "B" else {}
            return method(number, *args, **told, **options)

        return run

    for name, kind in kinds.items():
        setattr(stage, name, logged(getattr(stage, name), kind))
    return stage


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    rank, parts = int(os.environ["RANK"]), job["parts"]
    dist.init_process_group("gloo")
    log: list[str] = []
    model = Tiny(job["blocks"])
    modules = {s: kept(model, parts[s]) for s in range(rank, len(parts), job["ranks"])}
    stages = [
        recorded(PipelineStage(module, s, len(parts), torch.device("cpu")), log)
        for s, module in modules.items()
    ]
    schedule = _PipelineScheduleRuntime(
        stages, n_microbatches=job["micro_batches"], loss_fn=loss_of, scale_grads=False
    )
    schedule._load_csv(job["schedule"])
    tokens, targets = batch(job["micro_batches"])
    last = len(parts) - 1 in modules
    schedule.step(*[tokens] * (0 in modules), **({"target": targets} if last else {}))
    _write(Path(job["folder"]) / str(rank), log, list(modules.values()))
    dist.destroy_process_group()


def _write(path: Path, log: list[str], modules: list[nn.Module]) -> None:
    pairs = [pair for module in modules for pair in module.named_parameters()]
    torch.save({name: weight.grad for name, weight in pairs}, path.with_suffix(".pt"))
    path.with_suffix(".json").write_text(json.dumps(log))


if __name__ == "__main__":
    main()
