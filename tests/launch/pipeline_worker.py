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
    runs: dict[str, Any] = {
        name: getattr(stage, name)
        for name in ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")
    }
    index = stage.stage_index

    def forward(number: int, *args: Any, **options: Any) -> Any:
        log.append(f"{index}F{number}")
        return runs["forward_one_chunk"](number, *args, **options)

    def backward(number: int, *args: Any, full_backward: bool = True, **options: Any) -> Any:
        log.append(f"{index}{'B' if full_backward else 'I'}{number}")
        run = runs["backward_one_chunk"]
        return run(number, *args, full_backward=full_backward, **options)

    def weights(number: int, *args: Any, **options: Any) -> Any:
        log.append(f"{index}W{number}")
        return runs["backward_weight_one_chunk"](number, *args, **options)

    for name, run in zip(runs, (forward, backward, weights), strict=True):
        setattr(stage, name, run)
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
