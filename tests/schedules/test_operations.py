"""What devices do by a schedule, in the words of the literature, and what its closed forms say."""

import numpy as np

from formulations.instance.search import ScheduleName
from formulations.schedules.operations import Kind, Operation
from formulations.schedules.registry import SCHEDULES, device_order
from tests.recorded import as_recorded, digest
from tests.recursion import operations


def words(schedule: ScheduleName, p: int, device: int, m: int) -> str:
    """Operations of a device of one stage as F0 F1 B0 ..."""
    return " ".join(f"{kind.name[0]}{i}" for kind, _, i in device_order(schedule, p, device, m))


def check_device(
    schedule: ScheduleName, p: int, device: int, m: int, v: int = 1, group: int | None = None
) -> None:
    """The order is that of `operations`; latency paths miss what is counted along it.

    Forwards of a stage before its first backward, and backwards of it after its last forward, but
    for the one that the path visits; of gpipe, whose paths are of another family, nothing.
    """
    order = list(device_order(schedule, p, device, m, v, group))
    expected = operations(schedule, p, device, m, v, group)
    assert [(kind.name[0], stage, i) for kind, stage, i in order] == expected
    for stage in range(device, p * v, p):
        sizes = (np.array([x]) for x in (p, stage, m, v, group or p))
        returned, *late = SCHEDULES[schedule].missed(*sizes)
        if schedule == "gpipe":
            assert [int(x[0]) for x in returned] == [0, 0, 0]
            continue
        first = order.index(Operation(Kind.BACKWARD, stage, 0))
        last = order.index(Operation(Kind.FORWARD, stage, m - 1))
        forwards = sum(operation[:2] == (Kind.FORWARD, stage) for operation in order[:first])
        backwards = sum(operation[:2] == (Kind.BACKWARD, stage) for operation in order[last:])
        assert (int(returned.forward[0]), int(late[0].backward[0])) == (forwards - 1, backwards - 1)


def check_devices(schedule: ScheduleName) -> None:
    for p in (1, 2, 3, 5):
        for device in range(p):
            for m in (1, 2, 3, 4, 9):
                check_device(schedule, p, device, m)


def check_recorded(schedule: ScheduleName) -> None:
    """Operation orders, and what latency paths miss of every stage, as they are recorded."""
    figures, rows = dict[str, object](), SCHEDULES[schedule]
    for p, v, m in ((1, 1, 3), (2, 1, 5), (3, 1, 2), (4, 1, 9), (2, 2, 4), (3, 2, 6), (2, 3, 2)):
        if (v > 1) == rows.interleaves:
            orders = [list(device_order(schedule, p, device, m, v)) for device in range(p)]
            sizes = (np.full(p * v, p), np.arange(p * v), np.full(p * v, m), np.full(p * v, v))
            missed = [[each.tolist() for each in paths] for paths in rows.missed(*sizes)]
            figures[f"{schedule} {p} {v} {m}"] = [digest(orders), missed]
    as_recorded("schedules", figures)


def test_operations_are_named_as_in_the_literature() -> None:
    """A kind and a micro-batch; kinds in the order in which a micro-batch meets them."""
    assert words("zb-h1", 1, 0, 2) == "F0 B0 W0 F1 B1 W1"
    assert sorted(Kind) == [Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT]
    assert Operation(Kind.WEIGHT, 1, 2) > Operation(Kind.BACKWARD, 3, 4)
