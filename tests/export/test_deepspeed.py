"""DeepSpeed's files: what they say is the plan."""

import json

from solver.export import deepspeed
from solver.export.job import Job
from solver.export.registry import EXPORTERS
from tests.export.stored import JOBS, cases, check_stored


@cases("deepspeed")
def test_files_are_as_stored(name: str) -> None:
    """Parts of the chain with embedding and head; batches multiply to the global one."""
    check_stored("deepspeed", name)


def test_bug_deepspeed_ended_jobs_of_one_replica_at_start() -> None:
    """Without ZeRO it takes no gradients in fp32 of weights in bf16; ZeRO 1 of one replica is 0."""
    configuration = json.loads(deepspeed.files(JOBS["one_replica"])[deepspeed.CONFIG])
    assert configuration["zero_optimization"] == {"stage": 1}


def test_bug_deepspeed_ran_fp8_plans_in_fp32() -> None:
    """It has no fp8 of its own."""
    job = JOBS["uneven"]
    fp8 = Job(job.instance.but(workload={"precision": "fp8"}), job.plan)
    (fault, *_) = EXPORTERS["deepspeed"].faults(fp8)
    assert fault.found.startswith("precision: fp8 is not for DeepSpeed, ")
