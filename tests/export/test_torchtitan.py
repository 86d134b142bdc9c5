"""torchtitan's module and schedule: what they say is the plan."""

import pytest

from solver.export import torchtitan
from solver.export.registry import EXPORTERS
from solver.export.torchtitan import Field
from tests.export.stored import JOBS, cases, check_stored
from tests.export_cases import UNTIED, job_of


@cases("torchtitan")
def test_files_are_as_stored(name: str) -> None:
    """ZeRO 1 of several stages and 3 of one are FSDP2; a rank's chunks are stages r and r + 4."""
    check_stored("torchtitan", name)


@pytest.mark.parametrize(
    ("workload", "line"),
    [
        ("precision: fp16", "precision: fp16 is not for torchtitan"),
        ("gradient_precision: bf16", "gradient_precision: 16 bit is not for torchtitan"),
    ],
)
def test_precision(workload: str, line: str) -> None:
    """bf16 or fp32, gradients in fp32."""
    (fault,) = EXPORTERS["torchtitan"].faults(job_of(workload=f"{UNTIED}, {workload}"))
    assert fault.found.startswith(line)


@pytest.mark.parametrize(("name", "told"), [("uneven", "bfloat16"), ("fp32", "float32")])
def test_bug_torchtitan_ran_fp32_plans_in_bf16(name: str, told: str) -> None:
    """Its mixed precision is bf16 unless told."""
    assert torchtitan.settings(JOBS[name])[Field.PARAMETERS] == told
