"""Accelerate's module: FSDP2 over all processes, reduced with every micro-batch; else DDP."""

from tests.export.stored import check_exports

test_files_are_as_stored = check_exports("accelerate")
