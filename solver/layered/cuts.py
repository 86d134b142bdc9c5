"""Critical-path cuts: every path of the operation graph bounds the step time of every split."""

from dataclasses import dataclass

import numpy as np

from formulations.schedules import schedule_graph
from solver.layered.distinct import distinct_rows
from solver.layered.graph import Edges
from solver.layered.problem import Array, SplitProblem
from solver.simulate import PathCounts, Times, simulate, trace

#: Bytes of end times held at once by a batch simulation.
BATCH_BYTES = 1 << 26


@dataclass(frozen=True)
class Cuts:
    """C paths, each of one lane and to the last backward of one stage.

    rows: [C, 4p] counts: forwards, backwards, transfers from the stage before, and back to it,
    per stage. lane, stage: [C].
    """

    rows: Array
    lane: Array
    stage: Array

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, k: int, edges: Edges) -> Array:
        """[C, M] what the edges of stage k add to every cut."""
        p = self.rows.shape[1] // 4
        values = np.zeros((len(self), len(edges)), dtype=np.int64)
        parts = (edges.forward, edges.backward, edges.send, edges.send_back)
        for index, part in enumerate(parts):
            values += self.rows[:, index * p + k, None] * part[self.lane]
        values[self.stage == k] += edges.tail
        return values

    def take(self, keep: Array) -> "Cuts":
        """The cuts with these indices."""
        return Cuts(self.rows[keep], self.lane[keep], self.stage[keep])


@dataclass(frozen=True)
class Evaluation:
    """Simulated splits: step time [N]; one cut each, if harvested."""

    step_time: Array
    cuts: Cuts | None


def evaluate(
    problem: SplitProblem, arcs: Array, splits: Array, harvest: bool = False
) -> Evaluation:
    """Simulated step time of every split [N, p + 1] along arcs [N, p]."""
    m = max(problem.micro_batches)
    chunk = max(1, BATCH_BYTES // (16 * m * problem.num_stages))
    parts = [
        _evaluate(problem, arcs[i : i + chunk], splits[i : i + chunk], harvest)
        for i in range(0, len(splits), chunk)
    ]
    times = np.concatenate([part.step_time for part in parts])
    found = [part.cuts for part in parts if part.cuts is not None]
    return Evaluation(times, join_cuts(found) if harvest else None)


def _gather(problem: SplitProblem, name: str, arcs: Array, lane: int | None) -> Array:
    """[p, N] a field of the arcs, of one lane where it has lanes."""
    values = [getattr(stage, name)[arcs[:, k]] for k, stage in enumerate(problem.stages)]
    stacked: Array = np.stack(values)
    return stacked if lane is None else stacked[..., lane]


def _times(problem: SplitProblem, arcs: Array, splits: Array, lane: int) -> Times:
    start, end = splits[:, :-1].T, splits[:, 1:].T
    column = _gather(problem, "column", arcs, lane)
    return Times(
        problem.forward[column, start, end],
        problem.backward[column, start, end],
        _gather(problem, "send", arcs, lane)[1:],
        problem.blocking,
        _gather(problem, "send_back", arcs, lane)[1:],
    )


def _ends(problem: SplitProblem, arcs: Array, splits: Array, ready: Array) -> tuple[Array, Array]:
    """End of every stage [p, N] after its last backward at `ready`, and whose sync it awaits."""
    p = problem.num_stages
    start, end = splits[:, :-1].T, splits[:, 1:].T
    row = _gather(problem, "tail", arcs, None)
    synced = ready + problem.sync[row, start, end]
    source = np.repeat(np.arange(p)[:, None], len(splits), axis=1)
    if problem.tied:
        embedding = _gather(problem, "embedding", arcs, None)[[0, -1]].max(axis=0)
        source[[0, -1]] = np.where(synced[0] >= synced[-1], 0, p - 1)
        synced[[0, -1]] = np.maximum(synced[0], synced[-1]) + embedding
    return synced + problem.finish[row, start, end], source


def _evaluate(problem: SplitProblem, arcs: Array, splits: Array, harvest: bool) -> Evaluation:
    runs, ready = [], []
    for lane, m in enumerate(problem.micro_batches):
        graph = schedule_graph(problem.schedule, problem.num_stages, m)
        times = _times(problem, arcs, splits, lane)
        ends = simulate(graph, times)
        runs.append((graph, times, ends))
        ready.append(ends[graph.last_backward])
    stacked = np.stack(ready)
    done, source = _ends(problem, arcs, splits, stacked.max(axis=0))
    columns = np.arange(len(splits))
    last = done.argmax(axis=0)
    step_time = done[last, columns]
    if not harvest:
        return Evaluation(step_time, None)
    stage = source[last, columns]
    lane_of = stacked[:, stage, columns].argmax(axis=0)
    found = []
    for lane, (graph, times, ends) in enumerate(runs):
        own = np.flatnonzero(lane_of == lane)
        if own.size:
            path = trace(graph, times, ends, own, graph.last_backward[stage[own]])
            rows = _rows(path, problem.blocking)
            found.append(Cuts(rows, np.full(own.size, lane), stage[own]))
    return Evaluation(step_time, join_cuts(found))


def _rows(path: PathCounts, blocking: bool) -> Array:
    """Counts [N, 4p]; a blocking transfer counts whenever the operation that sends it does."""
    p = len(path.weights) // 2
    forward, backward = path.weights[:p], path.weights[p:]
    none = np.zeros_like(forward[:1])
    ahead, back = path.transfers[: p - 1], path.transfers[p - 1 : 2 * p - 2]
    if blocking:
        ahead, back = forward[:-1], backward[1:]
    return np.concatenate([forward, backward, none, ahead, none, back]).T


def join_cuts(parts: list[Cuts]) -> Cuts:
    """All different cuts of several sets."""
    rows = np.concatenate([np.column_stack([c.rows, c.lane, c.stage]) for c in parts])
    rows = distinct_rows(rows)
    return Cuts(rows[:, :-2], rows[:, -2], rows[:, -1])
