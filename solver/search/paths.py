"""Critical paths of simulated plans, as cuts that hold for every plan of the shape."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from formulations.costs.placement import PlacementCosts
from formulations.costs.plan_costs import PlanCosts, split_costs
from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import Array
from formulations.decisions import Decisions
from formulations.instance.search import ScheduleName
from formulations.paths import PathCut
from formulations.plan import Shape
from formulations.schedules import SCHEDULES, ScheduleGraph, schedule_graph
from solver.simulate import Times, simulate, tail_ns, trace

#: End times held at once when the neighbours of a split are simulated.
BATCH_ENTRIES = 1 << 22


@dataclass
class CutPool:
    """Cuts by (schedule, number of devices, chunks): they serve every shape with these three."""

    _cuts: dict[tuple[ScheduleName, int, int], set[PathCut]] = field(default_factory=dict)

    def of(self, shape: Shape) -> set[PathCut]:
        """The cuts that hold for a shape; add to it what is found."""
        return self._cuts.setdefault((shape.schedule, shape.pp, shape.vpp), set())


@dataclass(frozen=True)
class Harvest:
    """A simulated plan: its step time, and cuts of it and of its neighbours."""

    step_time_ns: int
    cuts: tuple[PathCut, ...]


def _paths(graph: ScheduleGraph, times: Times, end: Array, devices: Array) -> list[PathCut]:
    """Longest path to the last operation of `devices` [N], one per pipeline."""
    stages = graph.num_stages
    counts = trace(graph, times, end, np.arange(len(devices)), graph.last[devices])
    sends = counts.transfers[: stages - 1] + counts.transfers[stages - 1 : -1]
    operations = counts.weights.reshape(len(graph.index), stages, len(devices))
    return [
        PathCut(
            micro_batches=graph.micro_batches,
            device=int(device),
            operations=tuple(map(tuple, operations[:, :, n].tolist())),
            transfers=tuple(sends[:, n].tolist()),
        )
        for n, device in enumerate(devices)
    ]


def first_cuts(schedule: ScheduleName, p: int, m: int, v: int = 1) -> Iterator[PathCut]:
    """Paths through one slow stage i: they imply the latency-plus-bottleneck bound.

    PROBLEM 6.3: latency + (m-1) t_i - w min(f_i, b_i). One path is longest if the backward of
    stage i dwarfs all else, the other if its forward does, and so on with weight gradients; each to
    the last operation of device 0 and of that of stage i.
    """
    heavy, stages = 1_000_000, p * v
    kinds = 3 if SCHEDULES[schedule].splits_backward else 2
    times = np.ones((kinds * stages, kinds * stages), dtype=np.int64)
    np.fill_diagonal(times, heavy)
    parts = np.split(times, kinds)
    send = np.ones((stages - 1, kinds * stages), dtype=np.int64)
    pipelines = Times(parts[0], parts[1], send, weight=parts[2] if kinds > 2 else None)
    graph = schedule_graph(schedule, p, m, v)
    end = simulate(graph, pipelines)
    for devices in (np.zeros(kinds * stages, np.int64), np.arange(kinds * stages) % stages % p):
        yield from _paths(graph, pipelines, end, devices)


def _nearby(boundaries: Sequence[int], most: int) -> Array:
    """[N, S + 1] the split itself, then those with one boundary moved by one layer."""
    rows = [tuple(boundaries)]
    for k in range(1, len(boundaries) - 1):
        for moved in (boundaries[k] - 1, boundaries[k] + 1):
            if boundaries[k - 1] < moved < boundaries[k + 1]:
                rows.append((*boundaries[:k], moved, *boundaries[k + 1 :]))
    return np.array(rows[: most + 1], dtype=np.int64)


def _times(
    stages: StageCosts, placement: PlacementCosts, replica: int, share: int, splits: Array
) -> Times:
    """Stage times of one replica with this share under every split [N, S + 1].

    Of splits without room as if nothing were recomputed: their paths are paths all the same.
    """
    tables, shape = stages.tables, stages.tables.shape
    devices = np.arange(shape.num_stages) % shape.pp
    groups = placement.group_of_slot.reshape(shape.pp, shape.dp)[devices, replica, None]

    def sums(table: Array) -> Array:
        before = np.concatenate([np.zeros_like(table[:1]), table.cumsum(axis=0)])
        total: Array = before[splits[:, 1:].T, groups] - before[splits[:, :-1].T, groups]
        return total

    kinds = tables.message_kind[splits[:, 1:-1].T]
    send = placement.send_ns[kinds, devices[:-1, None], replica]
    blocking = tables.instance.search.blocking_sends
    forward, backward, *weight = map(sums, tables.passes)
    backward += stages.extra_of_splits(groups[: shape.pp, 0].tolist(), share, splits)
    return Times(forward, backward, send, blocking, weight=weight[0] if weight else None)


def _tails(costs: PlanCosts) -> Array:
    """[p] from the end of a device to that of the step, were it the last to finish."""
    finish = costs.optimizer_ns + costs.gather_ns
    if costs.tied:
        finish[[0, -1]] = finish[[0, -1]].max() + costs.embedding_ns
    return costs.sync_ns + finish


def _columns(placement: PlacementCosts, decisions: Decisions, dp: int) -> dict[bytes, list[int]]:
    """Replicas by equal groups and transfers."""
    groups = placement.group_of_slot.reshape(-1, dp)
    columns: dict[bytes, list[int]] = {}
    for r in range(dp):
        key = groups[:, r].tobytes() + placement.send_ns[:, :, r].tobytes()
        columns.setdefault(key, []).append(r)
    return columns


def harvest(
    stages: StageCosts,
    placement: PlacementCosts,
    decisions: Decisions,
    shares: Sequence[int],
    bound_ns: int,
) -> Harvest:
    """Simulates a plan, and traces its paths and those of its neighbours.

    Of the plan itself every path that ends, with its tail, after `bound_ns`: with these a model
    cannot value the plan below its simulated step time. One path each for splits with one moved
    boundary, and for each replica with one micro-batch more or less, if among `shares`.
    """
    tables, shape = stages.tables, stages.tables.shape
    costs = split_costs(tables, placement, decisions.boundaries, decisions.micro_batches)
    tails = _tails(costs)
    ready = np.zeros(shape.pp, dtype=np.int64)
    cuts: list[PathCut] = []
    for replicas in _columns(placement, decisions, shape.dp).values():
        own = {decisions.micro_batches[r] for r in replicas}
        near = {m + step for m in own for step in (-1, 1)} & set(shares)
        for m in sorted(own | near):
            graph = schedule_graph(shape.schedule, shape.pp, m, shape.vpp)
            most = BATCH_ENTRIES // graph.num_operations if m in own else 0
            splits = _nearby(decisions.boundaries, most)
            times = _times(stages, placement, replicas[0], m, splits)
            end = simulate(graph, times)
            ends = end[graph.last]
            cuts.extend(_paths(graph, times, end, (ends + tails[:, None]).argmax(axis=0)))
            if m in own:
                ready = np.maximum(ready, ends[:, 0])
                late = np.flatnonzero(ends[:, 0] + tails > bound_ns)
                cuts.extend(_paths(graph, _repeat(times, late), end[:, 0 * late], late))
    return Harvest(int(tail_ns(costs, ready).max()), tuple(dict.fromkeys(cuts)))


def _repeat(times: Times, columns: Array) -> Times:
    """The first pipeline, once for every column."""
    first = 0 * columns
    weight = None if times.weight is None else times.weight[:, first]
    return Times(
        times.forward[:, first],
        times.backward[:, first],
        times.send[:, first],
        times.blocking,
        weight=weight,
    )
