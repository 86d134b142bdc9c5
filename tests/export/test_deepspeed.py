"""DeepSpeed's files: what they say is the plan."""

import json

from solver.export import deepspeed
from tests.export.stored import JOBS, check_exports

test_files_are_as_stored = check_exports("deepspeed")


def test_bug_deepspeed_ended_jobs_of_one_replica_at_start() -> None:
    """Without ZeRO it takes no gradients in fp32 of weights in bf16; ZeRO 1 of one replica is 0."""
    configuration = json.loads(deepspeed.files(JOBS["one_replica"])[deepspeed.CONFIG])
    assert configuration["zero_optimization"] == {"stage": 1}
