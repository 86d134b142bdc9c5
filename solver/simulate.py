"""Step time as the longest path of the operation graph: the judge of every plan.

`simulate` runs thousands of pipelines at once, level by level of the graph, so its result does
not depend on the order in which devices are visited. `simulate_step` adds what follows the last
backward: gradient sync over the replicas of a stage, tied-embedding all-reduce between the first
and last stage, optimizer, parameter gather (ZeRO 1 and 2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.costs.plan_costs import PlanCosts, synced_ns
from formulations.costs.template_costs import TemplateCosts
from formulations.schedules.graph import ScheduleGraph, schedule_graph
from formulations.schedules.paths import PathCounts
from formulations.schedules.registry import SCHEDULES, Kind

Array = NDArray[np.int64]


@dataclass(frozen=True)
class Times:
    """Times of N pipelines of S virtual stages: forward, backward [S, N]; send [S - 1, N]; ns.

    Transfers from stage k to k + 1, and send_back from k + 1 to k; back takes as long as forth if
    None. With blocking sends the transfer is part of the operation that sends. weight: [S, N]
    weight gradients, where the schedule splits them from the backward pass.
    """

    forward: Array
    backward: Array
    send: Array
    blocking: bool = False
    send_back: Array | None = None
    weight: Array | None = None

    @property
    def back(self) -> Array:
        """[S - 1, N] transfers of gradients."""
        return self.send if self.send_back is None else self.send_back

    @property
    def weights(self) -> Array:
        """[2S or 3S, N] duration of operations: rows as `Level.weight`."""
        forward, backward = self.forward, self.backward
        if self.blocking:
            none = np.zeros_like(self.forward[:1])
            forward = forward + np.concatenate([self.send, none])
            backward = backward + np.concatenate([none, self.back])
        return np.concatenate([forward, backward, *([] if self.weight is None else [self.weight])])

    @property
    def transfers(self) -> Array:
        """[2S - 1, N] arrival delays: forward, backward, and a zero row for no transfer."""
        delays = np.concatenate([self.send, self.back, np.zeros_like(self.forward[:1])])
        return 0 * delays if self.blocking else delays


def simulate(graph: ScheduleGraph, times: Times) -> Array:
    """End of every operation, [operations + 1, N]; the last row is 0, the start of the step."""
    weights, transfers = times.weights, times.transfers
    end = np.zeros((graph.num_operations + 1, weights.shape[1]), dtype=np.int64)
    for level in graph.levels:
        ready = end[level.data_before] + transfers[level.transfer]
        np.maximum(ready, end[level.device_before], out=ready)
        end[level.operation] = ready + weights[level.weight]
    return end


def trace(
    graph: ScheduleGraph, times: Times, end: Array, columns: Array, last: Array
) -> PathCounts:
    """Longest paths of the pipelines `columns` [M] that end with the operations `last` [M]."""
    transfers = times.transfers
    counts = np.zeros((len(times.weights), len(columns)), dtype=np.int64)
    sends = np.zeros((len(transfers), len(columns)), dtype=np.int64)
    at, path = last.copy(), np.arange(len(columns))
    while path.size:
        counts[graph.weight[at], path] += 1
        data, device = graph.data_before[at], graph.device_before[at]
        move = graph.transfer[at]
        by_data = end[data, columns] + transfers[move, columns] > end[device, columns]
        sends[move[by_data], path[by_data]] += 1
        at = np.where(by_data, data, device)
        running = at != graph.num_operations
        at, path, columns = at[running], path[running], columns[running]
    sends[-1] = 0
    return PathCounts(counts, sends)


class Operation(NamedTuple):
    """One bar of the timeline.

    kind: forward, backward, weight (gradients split off), sync, embedding, optimizer, gather.
    """

    kind: str
    replica: int | None  #: None: all replicas of the stage
    stage: int
    micro_batch: int | None
    start_ns: int
    end_ns: int
    chunk: int = 0  #: of the layers of the stage, where it has several


@dataclass(frozen=True)
class Step:
    """One simulated optimizer step, all times in ns.

    tail: what follows the last backwards. ends: graph and end of every operation, by replica.
    """

    costs: PlanCosts
    step_time_ns: int
    tail: tuple[Operation, ...]
    critical_path: tuple[Operation, ...]
    ends: tuple[tuple[ScheduleGraph, Array], ...]

    def operations(self, replica: int) -> list[Operation]:
        """Forward and backward passes of one replica, in its order of operations."""
        graph, end = self.ends[replica]
        numbers = np.arange(graph.num_operations)
        return _operations(self.costs, replica, graph, end, numbers)


def tail_ns(costs: PlanCosts, ready: Array) -> Array:
    """End of every stage, given the end of its last backward over the replicas; [p, ..]."""
    after = (costs.optimizer_ns + costs.gather_ns).reshape(-1, *(1,) * (ready.ndim - 1))
    return synced_ns(costs, ready) + after


def replica_times(costs: PlanCosts, replicas: Sequence[int]) -> Times:
    """Times of some replicas, N of them."""
    columns = list(replicas)
    splits = SCHEDULES[costs.config.schedule].splits_backward
    weight = costs.weight_ns[:, columns] if splits else None
    return Times(
        costs.forward_ns[:, columns],
        costs.backward_ns[:, columns] - (0 if weight is None else weight),
        costs.send_ns[:, columns],
        costs.blocking_sends,
        weight=weight,
    )


def pipeline_times(costs: TemplateCosts) -> Times:
    """Times of a pipeline of a template, N = 1."""
    return Times(
        costs.forward_ns[:, None],
        costs.backward_ns[:, None],
        costs.send_ns[:, None],
        costs.blocking_sends,
        costs.send_back_ns[:, None],
    )


def pipeline_end_ns(costs: TemplateCosts, last: Array) -> Array:
    """[N] end of a single pipeline's step after its last backwards [p, N].

    Tied embeddings and optimizer follow; what goes on between pipelines is not counted.
    """
    ready = last.copy()
    if costs.embedding_ns:
        ready[[0, -1]] = np.maximum(ready[0], ready[-1]) + costs.embedding_ns
    end_ns: Array = (ready + costs.optimizer_ns[:, None]).max(axis=0)
    return end_ns


def pipeline_step_ns(costs: TemplateCosts, micro_batches: int) -> int:
    """Simulated step of a single pipeline."""
    graph = schedule_graph(costs.schedule, costs.num_stages, micro_batches)
    end = simulate(graph, pipeline_times(costs))
    return int(pipeline_end_ns(costs, end[graph.last])[0])


def _replica_ends(costs: PlanCosts) -> list[tuple[ScheduleGraph, Array]]:
    """Graph of every replica and the ends of its operations [operations + 1, 1].

    Unlike replicas with equally many micro-batches are simulated together.
    """
    config, alike = costs.config, dict[int, list[int]]()
    for r, m in enumerate(costs.micro_batches):
        alike.setdefault(m, []).append(r)
    ends: dict[int, tuple[ScheduleGraph, Array]] = {}
    for m, replicas in alike.items():
        times = replica_times(costs, replicas)
        columns = np.concatenate([times.weights, times.send])
        _, first, number = np.unique(columns, axis=1, return_index=True, return_inverse=True)
        graph = schedule_graph(config.schedule, config.pp, m, *config.chunking)
        end = simulate(graph, replica_times(costs, [replicas[i] for i in first]))
        columns_of = zip(replicas, number.ravel().tolist(), strict=True)
        ends |= {r: (graph, end[:, i : i + 1]) for r, i in columns_of}
    return [ends[r] for r in range(len(ends))]


def last_backwards_ns(costs: PlanCosts) -> Array:
    """[p, R] end of the last backward of every stage and replica."""
    return np.stack([end[graph.last, 0] for graph, end in _replica_ends(costs)], axis=1)


def step_time_ns(costs: PlanCosts) -> int:
    """Simulated step time only."""
    return int(tail_ns(costs, last_backwards_ns(costs).max(axis=1)).max())


def simulate_step(costs: PlanCosts) -> Step:
    """Simulated step with one critical path."""
    replicas = _replica_ends(costs)
    last = np.stack([end[graph.last, 0] for graph, end in replicas], axis=1)  # [p, R]
    tail = _tail_operations(costs, last.max(axis=1))
    return Step(
        costs=costs,
        step_time_ns=max([int(last.max()), *(operation.end_ns for operation in tail)]),
        tail=tuple(tail),
        critical_path=tuple(_critical_path(costs, replicas, last, tail)),
        ends=tuple(replicas),
    )


_BARS = {Kind.FORWARD: "forward", Kind.BACKWARD: "backward", Kind.WEIGHT: "weight"}


def _operations(
    costs: PlanCosts, replica: int, graph: ScheduleGraph, end: Array, numbers: Array
) -> list[Operation]:
    row = graph.weight[numbers]
    ends = end[numbers, 0]
    starts = ends - replica_times(costs, [replica]).weights[row, 0]
    columns = [column.tolist() for column in (row, graph.micro_batch[numbers], starts, ends)]
    pairs = product(_BARS, range(graph.num_stages))  # what a row stands for
    names = [(_BARS[kind], *divmod(stage, graph.num_devices)) for kind, stage in pairs]
    return [
        Operation(name, replica, device, i, start_ns, end_ns, chunk)
        for (name, chunk, device), i, start_ns, end_ns in (
            (names[k], *rest) for k, *rest in zip(*columns, strict=True)
        )
    ]


def _tail_operations(costs: PlanCosts, ready: Array) -> list[Operation]:
    """What follows the last backward, in order within every stage; empty spans are left out."""
    synced = ready + costs.sync_ns
    start = synced.copy()
    spans = [("sync", k, ready[k], synced[k]) for k in range(len(ready))]
    if costs.embedding_ns:
        begin = max(synced[0], synced[-1])
        start[[0, -1]] = begin + costs.embedding_ns
        spans += [("embedding", k, begin, start[k]) for k in (0, len(ready) - 1)]
    middle = start + costs.optimizer_ns
    spans += [("optimizer", k, start[k], middle[k]) for k in range(len(ready))]
    spans += [("gather", k, middle[k], middle[k] + costs.gather_ns[k]) for k in range(len(ready))]
    return [
        Operation(kind, None, k, None, int(begin), int(end))
        for kind, k, begin, end in spans
        if end > begin
    ]


def _critical_path(
    costs: PlanCosts,
    replicas: Sequence[tuple[ScheduleGraph, Array]],
    last: Array,
    tail: list[Operation],
) -> list[Operation]:
    """Operations from the start of the step to its end, in order."""
    path: list[Operation] = []
    ready = last.max(axis=1)
    if tail:
        path.append(max(tail, key=lambda operation: operation.end_ns))
    for before in reversed(tail):  # the tail is in the order of what follows each other
        after = path[-1]
        joined = after.kind == "embedding"  # it waits for the gradients of both its stages
        follows = before.kind == "sync" if joined else before.stage == after.stage
        if follows and before.end_ns == after.start_ns:
            path.append(before)
    # The stage whose last backward ends where the tail of the path begins
    stage = int(ready.argmax())
    if path:
        first = path[-1]
        stages = (0, len(ready) - 1) if first.kind == "embedding" else (first.stage,)
        stage = next(k for k in stages if ready[k] == first.start_ns)
    replica = int(last[stage].argmax())
    graph, end = replicas[replica]
    transfers = replica_times(costs, [replica]).transfers[:, 0]
    at = int(graph.last[stage])
    visited = []
    while at != graph.num_operations:
        visited.append(at)
        data, device = int(graph.data_before[at]), int(graph.device_before[at])
        arrival = end[data, 0] + transfers[graph.transfer[at]]
        at = data if arrival > end[device, 0] else device
    passes = np.array(visited, dtype=np.int64)
    return (path + _operations(costs, replica, graph, end, passes))[::-1]
