"""What is written for models of the transformers library."""

import json

from solver.export import huggingface
from tests.export.stored import check_exports
from tests.export_cases import TENSOR, UNEVEN, job_of

test_files_of_deepspeed_are_as_stored = check_exports("deepspeed")
test_files_of_accelerate_are_as_stored = check_exports("accelerate")


def test_vocabularies_are_padded_as_in_plans() -> None:
    """50,257 rows to a multiple of 2 * 128; the user's own model has no files."""
    job = job_of(**TENSOR)
    texts = huggingface.model_files(job, "deepspeed_training.py", recomputes=False)
    assert json.loads(texts["config.json"])["vocab_size"] == 50432
    assert huggingface.model_files(job.with_own_model, "deepspeed_training.py") == {}
    assert huggingface.model_faults(job) == huggingface.model_faults(job.with_own_model) == []
    (fault,) = huggingface.model_faults(UNEVEN)  # without positions
    assert "no decoder" in fault.found
