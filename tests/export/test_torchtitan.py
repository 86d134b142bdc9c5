"""torchtitan's module and schedule: what they say is the plan."""

import pytest

from solver.export import torchtitan
from solver.export.torchtitan import Field
from tests.export.stored import check_exports
from tests.export_cases import JOBS

test_files_are_as_stored = check_exports("torchtitan")


@pytest.mark.parametrize(("name", "told"), [("uneven", "bfloat16"), ("fp32", "float32")])
def test_bug_torchtitan_ran_fp32_plans_in_bf16(name: str, told: str) -> None:
    """Its mixed precision is bf16 unless told."""
    assert torchtitan.settings(JOBS[name])[Field.PARAMETERS] == told
