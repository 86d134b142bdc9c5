"""Shortest ways through the choices of two devices, by hand."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from solver.verify.families import BACK, THERE, of_one_chunk
from solver.verify.orders import Step
from solver.verify.path_lengths import Choices, Costs, LaneWays

Array = NDArray[np.int64]


def numbers(*values: int) -> Array:
    """[M] of a device's choices."""
    return np.array(values, dtype=np.int64)


def step() -> Step:
    """The one way to place a stage."""
    none: Any = np.zeros((1, 1, 1), dtype=np.int64)
    return Step(
        source=numbers(0),
        target=numbers(0),
        group=np.zeros((1, 1), dtype=np.int64),
        send=none,
        back=none,
        tail=numbers(0),
        begins=((),),
        num_targets=1,
    )


def ways() -> LaneWays:
    """Three layers: 1 or 2 on the first device. Forwards take 1 ms a layer there, 2 on the second.

    Backwards take as long, messages 5, the tails 100 and 7; once: 1000.
    """
    first = Choices(numbers(0, 0), numbers(0, 0), numbers(1, 2), numbers(1, 2))
    second = Choices(numbers(0, 0), numbers(1, 2), numbers(3, 3), numbers(2, 1))
    costs = [
        Costs(np.array([(1, 2), (1, 2), (0, 0), (0, 0)]), numbers(100, 100)),
        Costs(np.array([(4, 2), (4, 2), (0, 0), (5, 5)]), numbers(7, 7)),
    ]
    return LaneWays([step(), step()], [first, second], costs, numbers(1000, 1000), 4)


def test_ways_before_and_after_every_choice() -> None:
    """Down alone: 1 or 2 before; 9 or 7 after. There and back 2 or 4, and what follows once."""
    lane = ways()
    assert [own.tolist() for own in lane.before(THERE, False)] == [[0, 0], [1, 2]]
    assert [own.tolist() for own in lane.after(THERE)] == [[9, 7], [0, 0]]
    assert [own.tolist() for own in lane.before(BACK, True)] == [[0, 0], [1002, 1004]]
    assert [own.tolist() for own in lane.after(BACK)] == [[18, 14], [0, 0]]


@pytest.mark.parametrize(
    ("limit", "fits"), [(25, [True, True]), (24, [False, True]), (19, [False, False])]
)
def test_members_within_a_limit(limit: int, fits: list[bool]) -> None:
    """Three micro-batches on the second device, whose tail is 7: 1 + 3 * 4 + 5 + 7 = 25.

    With the shorter stage 2 + 3 * 2 + 5 + 7 = 20.
    """
    down = of_one_chunk((numbers(3, 3), numbers(0, 0), numbers(0, 0)), back=False, beyond=0)
    assert ways().within(1, [down], limit).tolist() == fits


def test_a_device_is_busy_for_whole_micro_batches() -> None:
    """Of 8 ms or 4 ms each, 2 or 5 in 20 ms."""
    assert ways().busiest(1, 20).tolist() == [2, 5]
