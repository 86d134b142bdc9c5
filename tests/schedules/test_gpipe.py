"""GPipe, operation by operation."""

import numpy as np
import pytest

from formulations.schedules.gpipe import missed, order
from formulations.schedules.operations import Kind, Operation


@pytest.mark.parametrize("device", [0, 1])
def test_all_forwards_first(device: int) -> None:
    """F0 F1 F2 B0 B1 B2 on every device."""
    expected = [
        Operation(kind, device, i) for kind in (Kind.FORWARD, Kind.BACKWARD) for i in (0, 1, 2)
    ]
    assert list(order(2, device, 3)) == expected


def test_latency_paths_miss_nothing() -> None:
    """All forwards of a stage come before any of its backwards."""
    (nothing,) = missed(*(np.array([x]) for x in (3, 1, 4, 1)))
    assert [int(x[0]) for x in nothing] == [0, 0, 0]
