"""torchtitan: what its FSDP splits, and which GPUs share experts and sequences."""

from typing import Any

import pytest

from tests.targets.test_launcher import refused


@pytest.mark.parametrize(
    ("demands", "fields"),
    [
        ({"zero": 1}, ["zero"]),
        ({"zero": 2}, []),
        ({"zero": 3}, []),
        ({"zero": 0, "copied": False}, []),
        ({"pp": 2, "zero": 0}, []),
        ({"pp": 2, "zero": 1}, []),
        ({"pp": 2, "zero": 2}, ["zero"]),
        ({"tp": 2, "ep": 2, "zero": 2}, ["expert_tensor_parallel"]),
        ({"tp": 2, "ep": 2, "etp": 1, "zero": 2}, []),
        ({"tp": 2, "ep": 1, "etp": 1, "zero": 2}, ["expert_tensor_parallel"]),
        ({"ep": 2, "pp": 2}, ["expert_parallel"]),
        ({"ep": 2, "pp": 2, "zero": 1}, []),
        ({"ep": 2, "pp": 2, "copied": False}, []),
        ({"cp": 2, "pp": 2}, ["context_parallel"]),
        ({"cp": 2, "pp": 2, "zero": 1}, []),
    ],
)
def test_fields_that_go_together(demands: dict[str, Any], fields: list[str]) -> None:
    """FSDP2 reduces with every micro-batch of one stage; its ranks share experts and sequences."""
    assert refused("torchtitan", **demands) == fields
