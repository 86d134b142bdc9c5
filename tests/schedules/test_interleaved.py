"""Interleaved 1F1B: what is counted in closed form is what its order does."""

from itertools import product

import numpy as np
import pytest

from formulations.schedules import Kind, Operation, device_order
from formulations.schedules.interleaved import forwards_before_return, missed

SIZES = [(p, v, m * p) for p, v, m in product((2, 3, 4), (2, 3), (1, 2, 5))]


def order_of(p: int, v: int, m: int, device: int) -> list[Operation]:
    """All that a device does."""
    return list(device_order("interleaved", p, device, m, v))


def test_orders_of_two_devices() -> None:
    """Two chunks each, two micro-batches: "F 2.1" is the forward of stage 2, micro-batch 1."""
    written = [
        " ".join(f"{kind.name[0]} {s}.{i}" for kind, s, i in order_of(2, 2, 2, d)) for d in (0, 1)
    ]
    assert written == [
        "F 0.0 F 0.1 F 2.0 F 2.1 B 2.0 B 2.1 B 0.0 B 0.1",
        "F 1.0 F 1.1 F 3.0 B 3.0 F 3.1 B 3.1 B 1.0 B 1.1",
    ]


@pytest.mark.parametrize(("p", "v", "m"), SIZES)
def test_forwards_before_the_first_backward(p: int, v: int, m: int) -> None:
    """Of the chunk with most of them, counted along the order of every device."""
    counted = []
    for device in range(p):
        order = order_of(p, v, m, device)
        first = next(i for i, operation in enumerate(order) if operation.kind == Kind.BACKWARD)
        stages = [operation.stage for operation in order[:first]]
        counted.append(max(map(stages.count, stages)))
    assert forwards_before_return(p, np.arange(p), m, v).tolist() == counted


@pytest.mark.parametrize(("p", "v", "m"), SIZES)
def test_operations_that_latency_paths_miss(p: int, v: int, m: int) -> None:
    """Forwards of a stage before its first backward, backwards of it after its last forward.

    But for the one that the path visits.
    """
    for stage in range(p * v):
        order = order_of(p, v, m, stage % p)
        back, last = Operation(Kind.BACKWARD, stage, 0), Operation(Kind.FORWARD, stage, m - 1)
        forwards = sum(operation[:2] == (0, stage) for operation in order[: order.index(back)])
        backwards = sum(operation[:2] == (1, stage) for operation in order[order.index(last) :])
        down, up = missed(*(np.array([x]) for x in (p, stage, m, v)))
        assert (down.forward.item(), up.backward.item()) == (forwards - 1, backwards - 1)
