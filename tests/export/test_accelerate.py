"""Accelerate's module: what it says is the plan."""

import pytest

from formulations.errors import PlannerError
from solver.export import accelerate
from solver.export.job import Job, read_settings
from solver.export.registry import EXPORTERS
from tests.export_cases import ONE_STAGE, SHARDED, UNTIED, job_of


def settings(job: Job) -> dict[str, object]:
    """What the module assigns."""
    return read_settings(accelerate.files(job)[accelerate.MODULE])


def test_accelerator_of_sharded_replicas() -> None:
    """FSDP2 over all processes, reduced with every micro-batch; without ZeRO it is DDP."""
    told = settings(SHARDED)
    assert told["SIZES"] == {"dp_replicate_size": 1, "dp_shard_size": 8, "tp_size": 1}
    assert told["SHARDING"] == {
        "fsdp_version": 2,
        "reshard_after_forward": True,
        "auto_wrap_policy": "transformer_based_wrap",
    }
    # 16 sequences: 8 replicas of one micro-batch of 2
    assert told["ACCUMULATION"] == {"num_steps": 1, "sync_each_batch": True}
    assert (told["MICRO_BATCH"], told["GLOBAL_BATCH"], told["PROCESSES"]) == (2, 16, 8)
    plain = settings(job_of(workload=UNTIED, zero=0, **ONE_STAGE))
    assert (plain["SIZES"], plain["SHARDING"], plain["RECOMPUTES"]) == (None, None, False)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("'dp_shard_size': 8", "'dp_shard_size': 4", "processes"),
        ("BLOCKS = 12", "BLOCKS = 13", "blocks"),
        ("'num_steps': 1", "'num_steps': 2", "micro-batches per replica"),
        ("MICRO_BATCH = 2", "MICRO_BATCH = 4", "micro and global batch"),
    ],
)
def test_file_that_says_anything_else_is_found(old: str, new: str, what: str) -> None:
    """As written it is accepted; with one thing changed it is refused for that very thing."""
    texts = accelerate.files(SHARDED)
    EXPORTERS["accelerate"].check(SHARDED, texts)
    text = texts[accelerate.MODULE]
    assert text.count(old) == 1
    with pytest.raises(PlannerError, match=f"^export failed: {what} read back as "):
        accelerate.check(SHARDED, texts | {accelerate.MODULE: text.replace(old, new)})
