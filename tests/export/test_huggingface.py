"""Files of DeepSpeed and Accelerate: what they say is the plan, of models of transformers."""

import json

from solver.export import huggingface
from tests.export.stored import check_exports
from tests.export_cases import JOBS, ONE_STAGE, TENSOR, UNEVEN, job_of

CUTS = (0, 9, 18, 24, 34)

test_files_of_deepspeed_are_as_stored = check_exports("deepspeed")
test_files_of_accelerate_are_as_stored = check_exports("accelerate")


def test_vocabularies_are_padded_as_in_plans() -> None:
    """50,257 rows to a multiple of 2 * 128; the user's own model has no files."""
    job = job_of(**TENSOR)
    texts = huggingface.deepspeed_files(job)
    assert json.loads(texts["config.json"])["vocab_size"] == 50432
    assert "config.json" not in huggingface.deepspeed_files(job.with_own_model)
    assert huggingface.deepspeed_faults(job) == []
    assert huggingface.deepspeed_faults(job.with_own_model) == []
    (fault,) = huggingface.deepspeed_faults(UNEVEN)  # without positions
    assert "no decoder" in fault.found


def test_bug_deepspeed_ended_jobs_of_one_replica_at_start() -> None:
    """Without ZeRO it takes no gradients in fp32 of weights in bf16; ZeRO 1 of one replica is 0."""
    texts = huggingface.deepspeed_files(JOBS["one_replica"])
    assert json.loads(texts[huggingface.ENGINE])["zero_optimization"] == {"stage": 1}


def test_windows_are_for_models_of_one_stage() -> None:
    """Blocks of a pipeline get no mask."""
    workload = "catalogue: mistral-7b, sequence_length: 512"
    jobs = (
        job_of(workload=workload, **more)
        for more in ({"cuts": CUTS}, ONE_STAGE | {"cuts": (0, 34)})
    )
    piped, whole = ([fault.found for fault in huggingface.deepspeed_faults(job)] for job in jobs)
    assert piped == [
        "attention: windows is not for pipelines of DeepSpeed, whose blocks get no mask here"
    ]
    assert whole == []


def test_only_models_of_the_user_are_split_over_tensor_groups() -> None:
    job = job_of(**TENSOR)
    (fault,) = huggingface.accelerate_faults(job)
    assert fault.found.startswith("tensor_parallel: 2 is not for Accelerate, which splits models")
    assert huggingface.accelerate_faults(job.with_own_model) == []


def test_gradients_are_kept_where_the_plan_keeps_them() -> None:
    kept = huggingface.accelerate_settings(job_of(zero=3, sync_each_batch=False, **ONE_STAGE))
    assert kept["ACCUMULATION"] == {"num_steps": 1, "sync_each_batch": False}
