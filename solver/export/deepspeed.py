"""DeepSpeed 0.19: JSON, and with several stages a `PipelineModule` cut as planned.

Its `partition_method` knows no list of layers, so a subclass sets the parts. Pipelines run 1F1B
with ZeRO 0 or 1, and split no layer; tensor parallelism (AutoTP) is for one stage, without
sequence parallelism. Gradients of another format than the weights end a job at start without ZeRO
(`engine.py`, "unsupported mix"); over one replica ZeRO 1 splits nothing, so it stands in for 0.
Ranks are as in the plan: `PipeDataParallelTopology`.
"""

import json
from collections.abc import Iterator, Mapping

from formulations.instance.target import STACK, Rule
from solver.export.job import IMPORTABLE, Fault, Job, read_settings, rule_faults
from solver.export.launcher import check_launcher, expect, launcher_files

NAME = "DeepSpeed"
CONFIG, MODULE = "ds_config.json", "planned_pipeline.py"

_HALVES = ("bf16", "fp16")

RULES = {
    "layers": STACK,
    "optimizer_state": Rule(("fp32",), "whose Adam keeps moments in 32 bit"),
    "context_parallel": Rule((1,), "whose pipelines take whole sequences"),
    "expert_parallel": Rule((1,), "whose experts are not written here"),
    "expert_tensor_parallel": Rule(("tp",), "whose experts are not written here"),
    "degrees": Rule(("uniform",), "which has the same degrees on all ranks"),
    "schedule": Rule(("1f1b",), "whose pipelines run 1F1B"),
    "micro_batches": Rule(("even",), "which runs equally many in all replicas"),
    "recompute_per": Rule(("plan",), "which recomputes alike on all ranks"),
    "recompute": Rule(("none", "full"), "which recomputes layers as a whole"),
}

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


def faults(job: Job) -> Iterator[Fault]:
    """What DeepSpeed cannot express."""
    shape = job.shape
    yield from rule_faults(job, NAME, RULES)
    if job.tp > 1 and shape.pp > 1:
        found = f"tensor_parallel: {job.tp} with {shape.pp} stages is not for {NAME}"
        yield Fault(found, "search.tensor_parallel: 1 or pipeline_parallel: 1, and solve again")
    if job.sequence_parallel:
        found = f"sequence_parallel: true is not for {NAME}"
        yield Fault(found, "search.sequence_parallel: false, and solve again")
    if job.tp > 1 and shape.zero > 2:
        found = f"zero: {shape.zero} with tensor_parallel: {job.tp} is not for {NAME}"
        yield Fault(found, "search.zero: [0, 1, 2], and solve again")
    if job.instance.workload.precision == "fp8":
        yield Fault(
            f"precision: fp8 is not for {NAME}", "workload.precision: bf16, and solve again"
        )
    if _mixed_gradients(job) and not shape.zero and shape.has_copies:
        found = f"zero: 0 with gradients in fp32 is not for {NAME}"
        yield Fault(found, "search.zero: 1, and solve again")


def _mixed_gradients(job: Job) -> bool:
    """Whether gradients are summed in another format than that of the weights."""
    workload = job.instance.workload
    return workload.precision in _HALVES and workload.gradient_bytes == 4


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
    stage = shape.zero if shape.has_copies else int(_mixed_gradients(job))
    found: dict[str, object] = {
        "train_batch_size": workload.global_batch,
        "train_micro_batch_size_per_gpu": shape.micro_batch,
        "gradient_accumulation_steps": job.micro_batches,
        "zero_optimization": {"stage": stage},
    }
    if workload.precision in _HALVES:
        found[workload.precision] = {"enabled": True}
    if _mixed_gradients(job):
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
