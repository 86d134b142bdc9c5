"""Who takes which plan, whatever the framework."""

import pytest

from formulations.space.launch import able
from solver.export.job import Job
from solver.export.registry import EXPORTERS
from solver.options import ExportTarget
from tests.export_cases import (
    CHUNKS,
    ONE_STAGE,
    SHARDED,
    TENSOR,
    UNEVEN,
    UNTIED,
    ZERO_BUBBLE,
    job_of,
    recomputing,
)
from tests.hand_made import results
from tests.seeds import one_each

ALL = set(EXPORTERS)


@pytest.mark.parametrize(
    ("job", "targets"),
    [
        (UNEVEN, ALL - {"accelerate"}),
        (job_of(), ALL - {"accelerate", "torchtitan"}),  # tied embeddings on several stages
        (CHUNKS, {"megatron", "megatron-bridge", "torchtitan"}),
        (ZERO_BUBBLE, {"torchtitan"}),
        (job_of(workload=UNTIED, schedule="gpipe"), {"torchtitan"}),
        (recomputing(UNEVEN, (3, 3, 2, 4)), ALL - {"accelerate"}),
        (recomputing(UNEVEN, (2, 2, 2, 2)), {"megatron", "megatron-bridge", "flagscale"}),
        (recomputing(UNEVEN, (3, 1, 0, 0)), {"flagscale"}),
        (SHARDED, {"torchtitan", "deepspeed", "accelerate"}),
        (job_of(workload=UNTIED, zero=1, **ONE_STAGE), ALL - {"torchtitan", "accelerate"}),
        (job_of(workload=UNTIED, shares=(5, 3)), set()),
        (job_of(workload=UNTIED, zero=0), ALL - {"accelerate", "deepspeed"}),
        (job_of(workload=UNTIED, zero=0, **TENSOR), ALL - {"accelerate", "deepspeed"}),
    ],
)
def test_each_plan_goes_to_those_who_can(job: Job, targets: set[ExportTarget]) -> None:
    """Whoever takes it writes files that sum to the plan; the others say what to change."""
    faults = {name: exporter.faults(job) for name, exporter in EXPORTERS.items()}
    assert {name for name in EXPORTERS if not faults[name]} == targets
    assert all(fault.found and fault.change for name in EXPORTERS for fault in faults[name])
    for name in targets:
        EXPORTERS[name].check(job, EXPORTERS[name].files(job))


@pytest.mark.parametrize("seed", one_each(range(60), 20))
def test_any_plan_is_exported_whole_or_refused(seed: int) -> None:
    """Random plans: whoever takes one writes files that sum to it, and rules agree on who can."""
    for result in results([seed]):
        assert result.plan is not None
        job = Job(result.instance, result.plan)
        launchers = able(result.instance, result.plan)
        for name, exporter in EXPORTERS.items():
            if not exporter.faults(job):
                exporter.check(job, exporter.files(job))
            if name in ("megatron", "flagscale", "torchtitan") and name not in launchers:
                assert exporter.faults(job)
