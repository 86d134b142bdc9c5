"""From an export back to its plan: what runs is the plan that was exported, to the nanosecond."""

from pathlib import Path
from typing import Any

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.errors import PlannerError
from formulations.units import seconds
from solver.evaluate.evaluation import predicted
from solver.evaluate.read import read_run
from solver.evaluate.run_plan import Planned
from solver.export.job import Job
from solver.export.registry import EXPORTERS
from solver.options import ExportTarget
from solver.simulate import step_time_ns
from tests.export_cases import CHUNK_CUTS, ONE_STAGE, UNTIED, instance_of, job_of, recomputing

TENSOR: dict[str, Any] = {"tp": 2, "dp": 1, "shares": (8,), "order": (0, 1, 1)}
MODES = "target: any, sequence_parallel: true, overlap: {tensor_parallel: 0.5, gradient_sync: 0.5}"
ALONE = "target: any, embedding_only_stages: true"
WAYS = "target: any, recompute: [none, full]"

MEGATRON = {
    "uneven": job_of(),
    "chunks": job_of(cuts=CHUNK_CUTS, schedule="interleaved", vpp=2),
    "tensor": job_of(**TENSOR),
    "modes": job_of(MODES, **TENSOR),
    "one stage": job_of(**ONE_STAGE),
    "idle host": job_of(pp=3, cuts=(0, 5, 10, 14), order=(1, 0), nodes_used=(1, 1)),
    "alone": job_of(ALONE, cuts=(0, 1, 7, 9, 14)),
    "full": job_of(recompute=("full",)),
    "selective": job_of(recompute=("selective",)),
    "first blocks": recomputing(job_of(WAYS, recompute=("none", "full")), (3, 3, 2, 3)),
    "no zero": job_of(zero=0),
}
TORCHTITAN = {
    "1f1b": job_of(workload=UNTIED),
    "gpipe": job_of(workload=UNTIED, schedule="gpipe"),
    "zb-h1": job_of(workload=UNTIED, schedule="zb-h1"),
    "chunks": job_of(workload=UNTIED, cuts=CHUNK_CUTS, schedule="interleaved", vpp=2),
    "zero 2": job_of(workload=UNTIED, zero=2, **ONE_STAGE),
    "zero 3": job_of(workload=UNTIED, zero=3, recompute=("full",), **ONE_STAGE),
}


def exported(job: Job, target: ExportTarget, folder: Path) -> None:
    """The files of a job, in a folder."""
    assert not EXPORTERS[target].faults(job)
    texts = EXPORTERS[target].files(job)
    EXPORTERS[target].check(job, texts)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def assert_is(own: Planned, job: Job) -> None:
    """The run takes as long as the job's plan, on the same GPUs, and breaks no limit."""
    document, found = predicted(own)
    assert document.step_time_s == seconds(step_time_ns(plan_costs(job.instance, job.plan)))
    assert Job(own.instance, own.plan).ranks == job.ranks
    assert found.broken == ()


@pytest.mark.parametrize("name", MEGATRON)
def test_exported_arguments_are_the_plan(name: str, tmp_path: Path) -> None:
    """Layouts, chunks, recomputation, ZeRO, settings and hosts of Megatron-LM's files."""
    job = MEGATRON[name]
    exported(job, "megatron", tmp_path)
    assert_is(read_run(job.instance, tmp_path / "megatron_args.txt"), job)


@pytest.mark.parametrize("name", TORCHTITAN)
def test_exported_configuration_is_the_plan(name: str, tmp_path: Path) -> None:
    """Parts, schedule file, sharding and checkpointing of torchtitan's module."""
    job = TORCHTITAN[name]
    exported(job, "torchtitan", tmp_path)
    assert_is(read_run(job.instance, None, tmp_path), job)


def test_degrees_are_the_plan() -> None:
    """The same in words, with the order of the hosts."""
    text = "tp=1, pp=4, dp=2, micro_batch=2, zero=1, split=3/3/2/4"
    assert_is(read_run(instance_of(), stated=text, order="small,big,small"), job_of())


def test_one_source_is_asked_for() -> None:
    """None, or two: the three options."""
    for arguments, stated in ((None, None), (Path("a.txt"), "tp=1")):
        with pytest.raises(PlannerError, match="--megatron FILE, --torchtitan DIR, --degrees"):
            read_run(instance_of(), arguments, stated=stated)
