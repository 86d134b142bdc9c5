"""Critical-path cuts: every path of the operation graph bounds the step time of every split."""

from dataclasses import dataclass

import numpy as np

from formulations.schedules.graph import schedule_graph
from formulations.schedules.paths import PathCounts, device_path, last_down, path_counts, returned
from solver.graph.edges import Edges
from solver.graph.problem import INFINITY, Array, SplitProblem, distinct_rows
from solver.interrupt import Stop
from solver.simulate import Times, simulate, trace

#: Bytes of end times held at once by a batch simulation.
BATCH_BYTES = 1 << 26


@dataclass(frozen=True)
class Cuts:
    """C paths, each of one lane and to the last backward of one stage.

    rows: [C, 5S] counts: forwards, backwards, transfers from the stage before, and back to it,
    weight gradients; per virtual stage. lane, device: [C].
    """

    rows: Array
    lane: Array
    device: Array
    num_devices: int

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, k: int, edges: Edges) -> Array:
        """[C, M] what the edges of stage k add to every cut."""
        stages = self.rows.shape[1] // 5
        values = np.zeros((len(self), len(edges)), dtype=np.int64)
        parts = (edges.forward, edges.backward, edges.send, edges.send_back, edges.weight)
        for index, part in enumerate(parts):
            if part is not None:
                values += self.rows[:, index * stages + k, None] * part[self.lane]
        values[self.device == k % self.num_devices] += edges.tail
        return values

    def take(self, keep: Array) -> "Cuts":
        """The cuts with these indices."""
        return Cuts(self.rows[keep], self.lane[keep], self.device[keep], self.num_devices)


@dataclass(frozen=True)
class Evaluation:
    """Simulated splits: step time [N], INFINITY without memory; one cut each, if harvested."""

    step_time: Array
    cuts: Cuts | None


def evaluate(
    problem: SplitProblem,
    arcs: Array,
    splits: Array,
    harvest: bool = False,
    stop: Stop = lambda: False,
) -> Evaluation:
    """Simulated step time of every split [N, p + 1] along arcs [N, p].

    Of the first of them only, one at least, where `stop` says so between two batches.
    """
    m = max(problem.micro_batches)
    chunk = max(1, BATCH_BYTES // (16 * m * problem.num_stages))
    parts: list[Evaluation] = []
    for i in range(0, len(splits), chunk):
        if parts and stop():
            break
        parts.append(_evaluate(problem, arcs[i : i + chunk], splits[i : i + chunk], harvest))
    times = np.concatenate([part.step_time for part in parts])
    cuts = [part.cuts for part in parts if part.cuts is not None]
    return Evaluation(times, join_cuts(cuts) if harvest else None)


def _gather(problem: SplitProblem, name: str, arcs: Array, lane: int | None) -> Array:
    """[p, N] a field of the arcs, of one lane where it has lanes."""
    values = [getattr(stage, name)[arcs[:, k]] for k, stage in enumerate(problem.stages)]
    stacked: Array = np.stack(values)
    return stacked if lane is None else stacked[..., lane]


def _times(problem: SplitProblem, arcs: Array, splits: Array, lane: int) -> Times:
    start, end = splits[:, :-1].T, splits[:, 1:].T
    column, memory = _gather(problem, "column", arcs, lane), problem.memory
    return Times(
        problem.forward[column, start, end],
        problem.backward[column, start, end] if memory is None else memory.backward(splits, lane),
        _gather(problem, "send", arcs, lane)[1:],
        problem.blocking,
        _gather(problem, "send_back", arcs, lane)[1:],
        None if problem.weight is None else problem.weight[column, start, end],
    )


def _ends(problem: SplitProblem, arcs: Array, splits: Array, ready: Array) -> tuple[Array, Array]:
    """End of every device [p, N] that is done at `ready`, and whose sync it awaits."""
    p = problem.num_devices
    start, end = splits[:, :-1].T, splits[:, 1:].T
    row = _gather(problem, "tail", arcs, None)
    sync, finish = (
        values[row, start, end].reshape(-1, p, len(splits)).sum(axis=0)
        for values in (problem.sync, problem.finish)
    )
    synced = ready + sync
    source = np.repeat(np.arange(p)[:, None], len(splits), axis=1)
    if problem.tied:
        columns, first = np.arange(len(splits)), (end == 0).sum(axis=0)
        ends = np.stack([first, np.full_like(first, -1)]), columns
        source[ends] = np.where(synced[first, columns] >= synced[-1], first, p - 1)
        embedding = _gather(problem, "embedding", arcs, None)[ends].max(axis=0)
        synced[ends] = synced[ends].max(axis=0) + embedding
    return synced + finish, source


def _evaluate(problem: SplitProblem, arcs: Array, splits: Array, harvest: bool) -> Evaluation:
    runs, ready = [], []
    for lane, m in enumerate(problem.micro_batches):
        graph = schedule_graph(
            problem.schedule, problem.num_devices, m, problem.chunks, problem.group
        )
        times = _times(problem, arcs, splits, lane)
        ends = simulate(graph, times)
        runs.append((graph, times, ends))
        ready.append(ends[graph.last])
    stacked = np.stack(ready)
    done, source = _ends(problem, arcs, splits, stacked.max(axis=0))
    columns = np.arange(len(splits))
    last = done.argmax(axis=0)
    step_time = np.where(problem.fits(splits), done[last, columns], INFINITY)
    if not harvest:
        return Evaluation(step_time, None)
    device = source[last, columns]
    lane_of = stacked[:, device, columns].argmax(axis=0)
    cuts = []
    for lane, (graph, times, ends) in enumerate(runs):
        columns_of_lane = np.flatnonzero(lane_of == lane)
        if columns_of_lane.size:
            path = trace(graph, times, ends, columns_of_lane, graph.last[device[columns_of_lane]])
            rows, lanes = rows_of(path, problem.blocking), np.full(columns_of_lane.size, lane)
            cuts.append(Cuts(rows, lanes, device[columns_of_lane], problem.num_devices))
    return Evaluation(step_time, join_cuts(cuts))


def rows_of(path: PathCounts, blocking: bool) -> Array:
    """Counts [N, 5S]; a blocking transfer counts whenever the operation that sends it does."""
    stages = len(path.transfers) // 2 + 1
    forward, backward = path.weights[:stages], path.weights[stages : 2 * stages]
    weight = path.weights[2 * stages :]
    none = np.zeros_like(forward[:1])
    ahead, back = path.transfers[: stages - 1], path.transfers[stages - 1 : -1]
    if blocking:
        ahead, back = forward[:-1], backward[1:]
    if not len(weight):
        weight = np.zeros_like(forward)
    return np.concatenate([forward, backward, none, ahead, none, back, weight]).T


def join_cuts(parts: list[Cuts]) -> Cuts:
    """All different cuts of several sets."""
    rows = np.concatenate([np.column_stack([c.rows, c.lane, c.device]) for c in parts])
    rows = distinct_rows(rows)
    return Cuts(rows[:, :-2], rows[:, -2], rows[:, -1], parts[0].num_devices)


def family_cuts(problem: SplitProblem) -> Cuts:
    """Paths of the families that hold for any schedule, of every lane, device and virtual stage."""
    rows, lanes, devices = [], [], []
    for lane, m in enumerate(problem.micro_batches):
        graph = schedule_graph(
            problem.schedule, problem.num_devices, m, problem.chunks, problem.group
        )
        devices_of = range(graph.num_devices)
        # Paths, each with the device that it ends on.
        members = [(device_path(graph, device), 0) for device in devices_of]
        members += [(device_path(graph, device, device), device) for device in devices_of]
        for stage in range(graph.num_stages):
            members.append((returned(graph, stage), 0))
            if graph.index[0, stage, -1] >= graph.index[0, stage % graph.num_devices, 0]:
                members.append((last_down(graph, stage), 0))
        for path, device in members:
            counts = path_counts(graph, path)
            column = PathCounts(counts.weights[:, None], counts.transfers[:, None])
            rows.append(rows_of(column, problem.blocking)[0])
            lanes.append(lane)
            devices.append(device)
    return Cuts(np.array(rows), np.array(lanes), np.array(devices), problem.num_devices)
