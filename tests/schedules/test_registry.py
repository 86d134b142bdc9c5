"""What devices do by each schedule, in the words of the literature, and what is stated of it."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from formulations.instance.search import ScheduleName
from formulations.schedules.graph import schedule_graph
from formulations.schedules.registry import (
    SCHEDULES,
    Kind,
    Operation,
    device_order,
    forwards_before_return,
    held,
    in_flight,
    sizes_of_groups,
    stage_moments,
)
from solver.simulate import Times, simulate
from tests.recorded import Cases, as_recorded, digest, recorded
from tests.recursion import most_in_flight, operations

STAGES = [(p, k, m) for p in (1, 2, 3, 5) for k in range(p) for m in (1, 2, 3, 4, 9)]
PREFIXES: list[ScheduleName] = ["1f1b", "gpipe"]


@pytest.mark.parametrize("schedule", PREFIXES)
def test_in_flight_is_the_most_activations_held(schedule: ScheduleName) -> None:
    """And without its last micro-batch an order is that of m - 1: cuts carry over to larger m."""
    for p, k, m in STAGES:
        assert in_flight(schedule, p, k, m) == most_in_flight(schedule, p, k, m)
        longer = [op for op in device_order(schedule, p, k, m + 1) if op.micro_batch < m]
        assert longer == list(device_order(schedule, p, k, m))


def test_zero_bubble_figures_of_its_authors(reference: Path) -> None:
    """ZB-H1's span and its peaks of memory, where the authors' memory limit is that of 1F1B."""
    cases = json.loads((reference / "schedules" / "zero_bubble.json").read_text())["cases"]
    cases = [c for c in cases if c.get("kind") is None and c["max_mem"] == c["mem_f"] * c["p"]]
    assert len(cases) == 7
    for case in cases:
        p, m = case["p"], case["m"]

        def column(name: str, rows: int, case: dict[str, int] = case) -> NDArray[np.int64]:
            return np.full((rows, 1), case[name], dtype=np.int64)

        graph = schedule_graph("zb-h1", p, m)
        times = Times(column("F", p), column("B", p), column("comm", p - 1), weight=column("W", p))
        end = simulate(graph, times)[:, 0]
        begin = end[graph.index[0, :, 0]] - case["F"]
        assert (end[graph.last] - begin).max() == case["result"]["stage_span"]
        assert end.max() == case["result"]["wall"]
        sizes = case["mem_f"], -case["mem_w"]
        peaks = [(np.array(held("zb-h1", p, k, m)) @ sizes).max() for k in range(p)]
        assert peaks == case["result"]["peak"]


@pytest.mark.parametrize("schedule", [name for name, one in SCHEDULES.items() if one.settles])
@pytest.mark.parametrize(
    ("p", "v", "size"), [(1, 1, 1), (2, 3, 2), (3, 1, 3), (4, 2, 4), (2, 2, 5)]
)
def test_devices_hold_no_more_for_more_micro_batches(
    schedule: ScheduleName, p: int, v: int, size: int
) -> None:
    """What `held` looks at, a few micro-batches per stage, has the fullest moments of many."""
    chunks, sizes = (v, [size]) if SCHEDULES[schedule].interleaves else (1, [])
    for m in range(p, 9 * p * chunks):
        if sizes and not sizes_of_groups(p, m, sizes):
            continue
        for device in range(p):
            order = np.array(list(device_order(schedule, p, device, m, chunks, *sizes)))
            change = 1 * (order[:, 0] == Kind.FORWARD) - (order[:, 0] == Kind.BACKWARD)
            most = int(np.cumsum(change).max())
            assert most == max(
                sum(row[:-1]) for row in held(schedule, p, device, m, chunks, *sizes)
            )


@recorded("fullest_moments")
def test_fullest_moments_are_the_recorded_ones() -> Cases:
    """ZB-H1, last of 3 stages, 5 micro-batches: F0 B0 F1 B1 F2 B2 W0 F3 B3 ...: 2 wait beside F2.

    After B2 three wait and none is whole.
    """
    assert stage_moments("zb-h1", 3, 2, 5) == ((0, 3), (1, 2))
    for name, schedule in SCHEDULES.items():
        for p, v, m in ((2, 2, 4), (3, 2, 9), (4, 3, 40)):
            v = v if schedule.interleaves else 1
            m = m // p * p if schedule.interleaves else m
            moments = [list(map(list, stage_moments(name, p, s, m, v))) for s in range(p * v)]
            fullest = [held(name, p, device, m, v) for device in range(p)]
            rows = [[[row[:-1] for row in each], [row[-1] for row in each]] for each in fullest]
            yield f"{name} {p} {v} {m}", [moments, rows]


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


def test_gpipe_runs_all_forwards_first() -> None:
    """On every device; latency paths miss nothing."""
    assert words("gpipe", 2, 1, 3) == "F0 F1 F2 B0 B1 B2"
    check_devices("gpipe")
    check_recorded("gpipe")


def test_three_stages_of_1f1b() -> None:
    """Stage k of 3 warms up with 2 - k forwards (PipeDream; Narayanan et al. 2021, figure 4)."""
    assert words("1f1b", 3, 0, 4) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert words("1f1b", 3, 1, 4) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert words("1f1b", 3, 2, 4) == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_order_of_1f1b_and_what_paths_miss() -> None:
    """At most p - k micro-batches are in flight; a warm-up longer than the batch is the batch."""
    check_devices("1f1b")
    check_recorded("1f1b")


def test_four_stages_of_zb_h1() -> None:
    """Stage k puts off k weight gradients (Qi et al., ICLR 2024, figure 2, top)."""
    assert words("zb-h1", 4, 0, 5) == "F0 F1 F2 F3 B0 W0 F4 B1 W1 B2 W2 B3 W3 B4 W4"
    assert words("zb-h1", 4, 1, 5) == "F0 F1 F2 B0 F3 B1 W0 F4 B2 W1 B3 W2 B4 W3 W4"
    assert words("zb-h1", 4, 3, 5) == "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 W2 W3 W4"


def test_order_of_zb_h1_and_what_paths_miss() -> None:
    """A B is followed by the oldest W once more than k wait, or than there are pairs."""
    check_devices("zb-h1")
    check_recorded("zb-h1")


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


def test_interleaved_orders_are_the_recorded_ones() -> None:
    check_recorded("interleaved")
