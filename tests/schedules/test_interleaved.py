"""Interleaved 1F1B: what is counted in closed form is what its order does."""

from itertools import product

import numpy as np
import pytest

from formulations.schedules.interleaved import forwards_before_return
from formulations.schedules.operations import Kind
from formulations.schedules.registry import device_order
from tests.schedules.orders import check_device, check_recorded

SIZES = [(p, v, m * p) for p, v, m in product((2, 3, 4), (2, 3), (1, 2, 5))]


@pytest.mark.parametrize(("p", "v", "m"), SIZES)
def test_megatrons_order(p: int, v: int, m: int) -> None:
    """Groups of p micro-batches through all chunks (Narayanan et al. 2021, figure 4).

    Forwards before the first backward are those of the chunk with most of them.
    """
    counted = []
    for device in range(p):
        check_device("interleaved", p, device, m, v)
        order = list(device_order("interleaved", p, device, m, v))
        first = next(i for i, operation in enumerate(order) if operation.kind == Kind.BACKWARD)
        stages = [operation.stage for operation in order[:first]]
        counted.append(max(map(stages.count, stages)))
    assert forwards_before_return(p, np.arange(p), m, v).tolist() == counted


def test_orders_are_the_recorded_ones() -> None:
    check_recorded("interleaved")
