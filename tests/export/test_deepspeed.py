"""DeepSpeed's files: what they say is the plan."""

import json

from solver.export import deepspeed
from tests.export.stored import check_exports
from tests.export_cases import JOBS, ONE_STAGE, job_of

CUTS = (0, 9, 18, 24, 34)

test_files_are_as_stored = check_exports("deepspeed")


def test_bug_deepspeed_ended_jobs_of_one_replica_at_start() -> None:
    """Without ZeRO it takes no gradients in fp32 of weights in bf16; ZeRO 1 of one replica is 0."""
    configuration = json.loads(deepspeed.files(JOBS["one_replica"])[deepspeed.CONFIG])
    assert configuration["zero_optimization"] == {"stage": 1}


def test_windows_are_for_models_of_one_stage() -> None:
    """Blocks of a pipeline get no mask."""
    workload = "catalogue: mistral-7b, sequence_length: 512"
    found = [fault.found for fault in deepspeed.model_faults(job_of(workload=workload, cuts=CUTS))]
    assert found == [
        "attention: windows is not for pipelines of DeepSpeed, whose blocks get no mask here"
    ]
    assert deepspeed.model_faults(job_of(workload=workload, **ONE_STAGE | {"cuts": (0, 34)})) == []
