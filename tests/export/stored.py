"""Exports of hand-made plans as they are stored in tests/data/exported.

Scripts for Slurm and lists of hosts, which are the same for all targets, for Megatron-LM alone.

`python -m tests.export.stored` writes them anew.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from formulations.plan import Degrees, Group
from formulations.space.launch import model_obstacles
from solver.export.job import HOSTS, SLURM, Job
from solver.export.registry import EXPORTERS
from solver.options import ExportTarget
from tests.conftest import ROOT
from tests.export.read_back import check_files
from tests.export_cases import (
    CHUNKS,
    GROUPED,
    ONE_STAGE,
    SHARDED,
    TENSOR,
    UNEVEN,
    UNTIED,
    WHOLE_EXPERTS,
    ZERO_BUBBLE,
    instance_of,
    job_of,
    plan_of,
    recomputing,
)

FOLDER = ROOT / "tests" / "data" / "exported"


def in_parts(*degrees: Degrees) -> Job:
    """One replica of two stages, of 9 and 5 layers, in parts on the A100 node and one of A10."""
    job = job_of(workload=UNTIED, pp=2, dp=1, cuts=(0, 9, 14), shares=(8,), order=(0, 1))
    (replica,) = job.plan.replicas
    stages = tuple(
        stage.but(group=Group(node=node, gpus=tuple(range(slot.width))), degrees=slot)
        for node, (stage, slot) in enumerate(zip(replica.stages, degrees, strict=True))
    )
    config = job.config.but(degrees=degrees, nodes_used=(1, 1))
    changed = job.plan.but(config=config, replicas=(replica.but(stages=stages),))
    return Job(job.instance, changed)


def sharing(method: str) -> Job:
    """Mixtral on two stages, each of which shares sequences in pairs, and experts among four."""
    search = f"target: any, context_parallel: 2, context_method: {method}, expert_parallel: 4"
    instance = instance_of("catalogue: mixtral-8x7b, sequence_length: 512", search)
    degrees = (Degrees(tp=1, cp=2),) * 2
    return Job(instance, plan_of(instance, (0, 17, 34), dp=2, pp=2, ep=4, degrees=degrees))


MTP = f"{UNTIED.removesuffix('}, sequence_length: 1024')}, mtp_layers: 1}}, sequence_length: 1024"
ALONE = "target: any, embedding_only_stages: true"
JOBS: dict[str, Job] = {
    "uneven": UNEVEN,
    "gpt2": job_of(zero=3, **ONE_STAGE),
    "llama": job_of(workload="catalogue: llama3-8b, sequence_length: 512", cuts=(0, 9, 18, 24, 34)),
    "chunks": CHUNKS,
    "groups": GROUPED,
    "zero_bubble": ZERO_BUBBLE,
    "sharded": SHARDED,
    "whole_experts": WHOLE_EXPERTS,
    "ring": sharing("ring"),
    "exchange": sharing("all_to_all"),
    "alone": job_of(ALONE, cuts=(0, 1, 7, 9, 14)),
    "predicting": job_of(workload=MTP),
    "tensor": job_of(**TENSOR),
    "one_stage": job_of(**ONE_STAGE),
    "in_bf16": job_of(workload=f"{UNTIED}, gradient_precision: bf16, optimizer_state: bf16"),
    "fp32": job_of(workload=f"{UNTIED}, precision: fp32"),
    "tf32": job_of(workload=f"{UNTIED}, precision: tf32"),
    "fp16": job_of(workload=f"{UNTIED}, precision: fp16"),
    "fused": job_of(workload=f"{UNTIED}, fused_cross_entropy: true"),
    "no_zero": job_of(workload=UNTIED, zero=0, order=(0, 1, 1)),
    "two_meshes": job_of(order=(0, 1, 1)),
    "mixed_stage": job_of(pp=1, dp=8, cuts=(0, 14), shares=(1,) * 8, order=(1, 0, 1)),
    "unlike": in_parts(Degrees(tp=2, parts=2), Degrees(tp=1, parts=2)),
    "recomputing": recomputing(UNEVEN, (3, 3, 2, 4)),
    "first_blocks": recomputing(UNEVEN, (2, 2, 2, 2)),
    "stage_by_stage": recomputing(UNEVEN, (3, 1, 0, 0)),
    "replicated": job_of(workload=UNTIED, zero=0, **ONE_STAGE),
    "one_replica": job_of(
        workload=UNTIED, dp=1, pp=8, cuts=(0, 3, 4, 5, 7, 8, 9, 11, 14), shares=(8,), zero=0
    ),
    "pairs": job_of(
        "target: any, sequence_parallel: false",
        UNTIED,
        tp=2,
        **ONE_STAGE | {"dp": 4, "shares": (2,) * 4},
    ),
    "odd_name": replace(
        UNEVEN, instance=UNEVEN.instance.model_copy(update={"name": "a'b; rm -rf $HOME\nx"})
    ),
}


def stored(target: ExportTarget) -> list[str]:
    """Names of the jobs of which an export is stored; an empty file asks for one."""
    paths = sorted(FOLDER.glob(f"*.{target}.txt"))
    return [path.name.removesuffix(f".{target}.txt") for path in paths]


def export(target: ExportTarget, name: str) -> str:
    """The files of an export, one behind the other; what is written in Python compiles."""
    exporter, job = EXPORTERS[target], JOBS[name]
    if exporter.builds(job) or model_obstacles(job.instance, exporter.launcher):
        job = job.with_own_model
    assert [fault.found for fault in exporter.faults(job)] == []
    texts = exporter.files(job)
    check_files(target, job, texts)
    for file, text in texts.items():
        if file.endswith(".py"):
            compile(text, file, "exec")
    left_out = () if target == "megatron" else (SLURM, HOSTS)
    return "".join(f"===== {file}\n{texts[file]}" for file in texts if file not in left_out)


def check_exports(target: ExportTarget) -> Callable[[str], None]:
    """A test of every stored export of a target."""

    def test(name: str) -> None:
        assert export(target, name) == (FOLDER / f"{name}.{target}.txt").read_text("utf-8")

    marked: Callable[[str], None] = pytest.mark.parametrize("name", stored(target))(test)
    return marked


if __name__ == "__main__":
    for target in EXPORTERS:
        for name in stored(target):
            text = export(target, name)
            (FOLDER / f"{name}.{target}.txt").write_text(text, encoding="utf-8")
