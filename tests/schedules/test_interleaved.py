"""Interleaved 1F1B: what is counted in closed form is what its order does."""

from itertools import product

import numpy as np
import pytest

from formulations.schedules.interleaved import forwards_before_return, sizes_of_groups
from formulations.schedules.operations import Kind
from formulations.schedules.registry import device_order
from tests.schedules.test_operations import check_device, check_recorded

SIZES = [(p, v, m * p, p) for p, v, m in product((2, 3, 4), (2, 3), (1, 2, 5))]
#: Groups that leave none, p, or more micro-batches to the last one.
SIZES += [(p, v, m, p + n) for p, v, m in product((2, 3), (2, 3), (7, 8, 12)) for n in (1, 2, 4)]
SIZES = [size for size in SIZES if sizes_of_groups(size[0], size[2], [size[3]])]


@pytest.mark.parametrize(("p", "v", "m", "group"), SIZES)
def test_megatrons_order(p: int, v: int, m: int, group: int) -> None:
    """Groups of micro-batches through all chunks (Narayanan et al. 2021, figure 4).

    Forwards before the first backward are those of the chunk with most of them.
    """
    counted = []
    for device in range(p):
        check_device("interleaved", p, device, m, v, group)
        order = list(device_order("interleaved", p, device, m, v, group))
        first = next(i for i, operation in enumerate(order) if operation.kind == Kind.BACKWARD)
        stages = [operation.stage for operation in order[:first]]
        counted.append(max(map(stages.count, stages)))
    assert forwards_before_return(p, np.arange(p), m, v, group).tolist() == counted


def test_table_of_megatron_core() -> None:
    """Its example of PP 2, N 3, 5 micro-batches, VP 2 (schedules.py), of the first device.

    Five are forward when the first comes back: 2 (p - 1) + N of the warm-up, less or more none.
    """
    order = list(device_order("interleaved", 2, 0, 5, 2, 3))
    forwards = [one for one in order if one.kind == Kind.FORWARD]
    assert [one.micro_batch for one in forwards] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert [one.stage // 2 for one in forwards] == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert [one.kind for one in order[:7]] == [Kind.FORWARD] * 6 + [Kind.BACKWARD]


def test_groups_are_what_megatron_core_takes() -> None:
    """With 3 stages and 11 micro-batches: 4 leave 3, 5 leave 1, 6 leave 5, 9 leave 2."""
    allowed = [4, 6, 7, 8, 11]
    assert sizes_of_groups(3, 11, range(2, 13)) == allowed
    assert sizes_of_groups(3, 12, [None, 3, 4, 4]) == [None, 4]


def test_orders_are_the_recorded_ones() -> None:
    check_recorded("interleaved")
