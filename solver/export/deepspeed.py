"""DeepSpeed 0.19: JSON, and with several stages a `PipelineModule` cut as planned.

Its `partition_method` knows no list of layers, so a subclass sets the parts.
Ranks are as in the plan: `PipeDataParallelTopology`.
"""

import json
from collections.abc import Mapping

from formulations.instance.targets.deepspeed import mixed_gradients
from solver.export.job import IMPORTABLE, Job, read_settings
from solver.export.launcher import check_launcher, expect, launcher_files

CONFIG, MODULE = "ds_config.json", "planned_pipeline.py"

_TEXT = '''\
"""DeepSpeed pipeline of {title}.

PlannedPipeline(layers, loss_fn=...) takes the layers in order: embedding, blocks, head, each one
entry{tied}. The order of the hosts (hosts.txt) places the stages.
"""

from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import PipeDataParallelTopology

#: First layer of each stage, and the number of layers.
PARTS = {parts}
STAGES = {pp}
REPLICAS = {dp}
#: Layers per recomputed run; 0: none is recomputed.
RECOMPUTED_RUN = {run}


class PlannedPipeline(PipelineModule):
    """A pipeline whose stages are the plan's."""

    def __init__(self, layers, **options):
        if len(layers) != PARTS[-1]:
            raise ValueError(f"the plan is for {{PARTS[-1]}} layers, not {{len(layers)}}")
        topology = PipeDataParallelTopology(num_pp=STAGES, num_dp=REPLICAS)
        run = RECOMPUTED_RUN
        super().__init__(layers, topology=topology, activation_checkpoint_interval=run, **options)

    def _partition_layers(self, method="uniform"):
        self.parts = list(PARTS)
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])
'''


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    command = f'"$1" --deepspeed_config "$here/{CONFIG}" "${{@:2}}"'
    usage = "SCRIPT [ARGUMENTS]"
    pipeline = {MODULE: _pipeline(job)} if job.shape.pp > 1 else {}
    text = json.dumps(_configuration(job), indent=1) + "\n"
    return {CONFIG: text, **pipeline, **launcher_files(job, usage, command, IMPORTABLE)}


def _pipeline(job: Job) -> str:
    return _TEXT.format(
        title=job.title,
        parts=_parts(job),
        tied=", the tied ones as TiedLayerSpec" * job.instance.workload.tied_embeddings,
        pp=job.shape.pp,
        dp=job.shape.dp,
        run=int(job.recompute_way == "full"),
    )


def _parts(job: Job) -> list[int]:
    stages = job.plan.replicas[0].stages
    return [0, *(stage.layers[1] for stage in stages)]


def _configuration(job: Job) -> dict[str, object]:
    shape, workload = job.shape, job.instance.workload
    stage = shape.zero if shape.has_copies else int(mixed_gradients(workload))
    found: dict[str, object] = {
        "train_batch_size": workload.global_batch,
        "train_micro_batch_size_per_gpu": shape.micro_batch,
        "gradient_accumulation_steps": job.micro_batches,
        "zero_optimization": {"stage": stage},
    }
    if workload.precision in ("bf16", "fp16"):
        found[workload.precision] = {"enabled": True}
    if mixed_gradients(workload):
        found["data_types"] = {"grad_accum_dtype": "fp32"}
    if job.tp > 1:
        found["tensor_parallel"] = {"autotp_size": job.tp}
    return found


def check(job: Job, texts: Mapping[str, str]) -> None:
    """Raises PlannerError unless the files, read back, say what the plan does."""
    check_launcher(job, texts)
    found = json.loads(texts[CONFIG])
    micro, steps = found["train_micro_batch_size_per_gpu"], found["gradient_accumulation_steps"]
    expect("micro-batches per replica", steps, job.micro_batches)
    expect("global batch", micro * steps * job.shape.dp, found["train_batch_size"])
    autotp = found.get("tensor_parallel", {"autotp_size": 1})["autotp_size"]
    expect("tensor degree", autotp, job.tp)
    if job.shape.pp > 1:
        module = read_settings(texts[MODULE])
        expect("parts", module["PARTS"], _parts(job))
        expect("layers", _parts(job)[-1], job.num_blocks + 2)
        expect("stages x replicas", (module["STAGES"], module["REPLICAS"]), _grid(job))


def _grid(job: Job) -> tuple[int, int]:
    return job.shape.pp, job.shape.dp
