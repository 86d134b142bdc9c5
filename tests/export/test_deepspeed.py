"""DeepSpeed's files: what they say is the plan."""

import json
from typing import Any

import pytest

from formulations.errors import PlannerError
from solver.export import deepspeed
from solver.export.job import Job, read_settings
from solver.export.registry import EXPORTERS
from tests.export_cases import ONE_STAGE, SHARDED, UNEVEN, UNTIED, job_of, recomputing


def configuration(job: Job) -> Any:
    """The JSON file."""
    return json.loads(deepspeed.files(job)[deepspeed.CONFIG])


def test_pipeline_and_configuration() -> None:
    """Parts are those of the chain with embedding and head; batches multiply to the global one."""
    job = recomputing(UNEVEN, (3, 3, 2, 4))
    module = read_settings(deepspeed.files(job)[deepspeed.MODULE])
    assert module["PARTS"] == [0, 4, 7, 9, 14]
    assert (module["STAGES"], module["REPLICAS"], module["RECOMPUTED_RUN"]) == (4, 2, 1)
    told = configuration(job)
    # 16 sequences: 2 replicas of 4 micro-batches of 2
    sizes = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    assert [told[size] for size in sizes] == [2, 4, 16]
    assert told["zero_optimization"] == {"stage": 1}
    assert (told["bf16"], told["data_types"]) == ({"enabled": True}, {"grad_accum_dtype": "fp32"})
    assert deepspeed.MODULE not in deepspeed.files(SHARDED)
    split = job_of(
        "target: any, sequence_parallel: false",
        UNTIED,
        tp=2,
        **ONE_STAGE | {"dp": 4, "shares": (2,) * 4},
    )
    assert configuration(split)["tensor_parallel"] == {"autotp_size": 2}


def test_bug_deepspeed_ended_jobs_of_one_replica_at_start() -> None:
    """Without ZeRO it takes no gradients in fp32 of weights in bf16; ZeRO 1 of one replica is 0."""
    cuts = (0, 3, 4, 5, 7, 8, 9, 11, 14)
    job = job_of(workload=UNTIED, dp=1, pp=8, cuts=cuts, shares=(8,), zero=0)
    assert EXPORTERS["deepspeed"].faults(job) == []
    assert configuration(job)["zero_optimization"] == {"stage": 1}


def test_bug_deepspeed_ran_fp8_plans_in_fp32() -> None:
    """It has no fp8 of its own."""
    job = Job(UNEVEN.instance.but(workload={"precision": "fp8"}), UNEVEN.plan)
    (fault, *_) = EXPORTERS["deepspeed"].faults(job)
    assert fault.found.startswith("precision: fp8 is not for DeepSpeed, ")


@pytest.mark.parametrize(
    ("file", "old", "new", "what"),
    [
        (deepspeed.CONFIG, '_steps": 4', '_steps": 2', "micro-batches per replica"),
        (deepspeed.CONFIG, '"train_batch_size": 16', '"train_batch_size": 8', "global batch"),
        (deepspeed.MODULE, "[0, 4, 7, 9, 14]", "[0, 4, 7, 8, 14]", "parts"),
        (deepspeed.MODULE, "REPLICAS = 2", "REPLICAS = 4", "stages x replicas"),
    ],
)
def test_file_that_says_anything_else_is_found(file: str, old: str, new: str, what: str) -> None:
    """As written it is accepted; with one thing changed it is refused for that very thing."""
    texts = deepspeed.files(UNEVEN)
    EXPORTERS["deepspeed"].check(UNEVEN, texts)
    assert texts[file].count(old) == 1
    with pytest.raises(PlannerError, match=f"^export failed: {what} read back as "):
        deepspeed.check(UNEVEN, texts | {file: texts[file].replace(old, new)})
