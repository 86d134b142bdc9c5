"""Accelerate: fields that exclude each other, each just inside and just outside."""

from typing import Any

import pytest

from tests.targets.test_launcher import refused


@pytest.mark.parametrize(
    ("demands", "fields"),
    [
        ({"pp": 2, "zero": 0}, ["pipeline_parallel"]),
        ({"zero": 0}, []),
        ({"zero": 1}, ["zero"]),
        ({"zero": 1, "copied": False}, []),
        ({"zero": 2}, []),
        ({"tp": 2, "zero": 0}, ["zero"]),
        ({"tp": 2, "zero": 0, "copied": False}, []),
        ({"tp": 2, "zero": 2}, []),
        ({"tp": 2, "zero": 2, "splits_sequence": True}, ["sequence_parallel"]),
        ({"tp": 1, "zero": 2, "splits_sequence": True}, []),
    ],
)
def test_fields_that_go_together(demands: dict[str, Any], fields: list[str]) -> None:
    """It has no pipelines, and FSDP2 splits gradients too."""
    assert refused("accelerate", **demands) == fields
