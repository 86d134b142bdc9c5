"""Accelerate's module: FSDP2 over all processes, reduced with every micro-batch; else DDP."""

from solver.export import accelerate
from tests.export.stored import check_exports
from tests.export_cases import ONE_STAGE, TENSOR, job_of

test_files_are_as_stored = check_exports("accelerate")


def test_only_models_of_the_user_are_split_over_tensor_groups() -> None:
    job = job_of(**TENSOR)
    (fault,) = accelerate.model_faults(job)
    assert fault.found.startswith("tensor_parallel: 2 is not for Accelerate, which splits models")
    assert accelerate.model_faults(job.with_own_model) == []


def test_gradients_are_kept_where_the_plan_keeps_them() -> None:
    kept = job_of(zero=3, sync_each_batch=False, **ONE_STAGE)
    assert accelerate.settings(kept)["ACCUMULATION"] == {"num_steps": 1, "sync_each_batch": False}
