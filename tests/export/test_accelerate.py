"""Accelerate's module: what it says is the plan."""

from tests.export.stored import cases, check_stored


@cases("accelerate")
def test_files_are_as_stored(name: str) -> None:
    """FSDP2 over all processes, reduced with every micro-batch; without ZeRO it is DDP."""
    check_stored("accelerate", name)
