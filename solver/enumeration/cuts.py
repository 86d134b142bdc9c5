"""Critical-path cuts: every path of the operation graph bounds the step time of every split."""

from dataclasses import dataclass

import numpy as np

from formulations.schedules import schedule_graph
from solver.enumeration.problem import Array, SplitProblem
from solver.simulate import Times, simulate, trace

#: Bytes of end times held at once by a batch simulation.
BATCH_BYTES = 1 << 26


@dataclass(frozen=True)
class Cuts:
    """C paths: counts of forwards and backwards per stage, all transfers, lane and last stage.

    forward, backward: [C, p]. sends: [C] ns, constant. lane, stage: [C].
    """

    forward: Array
    backward: Array
    sends: Array
    lane: Array
    stage: Array

    def __len__(self) -> int:
        return len(self.sends)

    def increments(self, problem: SplitProblem, k: int, start: Array, end: Array) -> Array:
        """[N, C] what layers [start, end) on stage k add to every cut."""
        forward = np.stack([lane.forward[k, start, end] for lane in problem.lanes], axis=1)
        backward = np.stack([lane.backward[k, start, end] for lane in problem.lanes], axis=1)
        values = forward[:, self.lane] * self.forward[:, k]
        values += backward[:, self.lane] * self.backward[:, k]
        own = self.stage == k
        values[:, own] += problem.tail[k, start, end][:, None]
        return values

    def costs(self, problem: SplitProblem, k: int) -> Array:
        """[C, n, n] the same for all intervals of stage k."""
        forward = np.stack([lane.forward[k] for lane in problem.lanes])
        backward = np.stack([lane.backward[k] for lane in problem.lanes])
        values = forward[self.lane] * self.forward[:, k, None, None]
        values += backward[self.lane] * self.backward[:, k, None, None]
        values[self.stage == k] += problem.tail[k]
        return values


@dataclass(frozen=True)
class Evaluation:
    """Simulated splits: step time [N], lane and last stage of the critical path [N]."""

    step_time: Array
    cuts: Cuts | None


def stage_intervals(splits: Array) -> tuple[Array, Array]:
    """[p, N] first and last + 1 layer of the stages of `splits` [N, p + 1]."""
    return splits[:, :-1].T, splits[:, 1:].T


def evaluate(problem: SplitProblem, splits: Array, harvest: bool = False) -> Evaluation:
    """Simulated step time of every split [N, p + 1]; with `harvest`, also its critical path."""
    m = max(lane.micro_batches for lane in problem.lanes)
    chunk = max(1, BATCH_BYTES // (16 * m * problem.num_stages))
    parts = [
        _evaluate(problem, splits[i : i + chunk], harvest) for i in range(0, len(splits), chunk)
    ]
    times = np.concatenate([part.step_time for part in parts])
    found = [part.cuts for part in parts if part.cuts is not None]
    return Evaluation(times, join_cuts(found) if harvest else None)


def _evaluate(problem: SplitProblem, splits: Array, harvest: bool) -> Evaluation:
    p = problem.num_stages
    start, end = stage_intervals(splits)
    stages = np.arange(p)[:, None]
    runs, ready = [], []
    for lane in problem.lanes:
        graph = schedule_graph(problem.schedule, p, lane.micro_batches)
        send = np.repeat(lane.send[:, None], len(splits), axis=1)
        times = Times(lane.forward[stages, start, end], lane.backward[stages, start, end], send)
        ends = simulate(graph, times)
        runs.append((graph, times, ends))
        ready.append(ends[graph.last_backward])
    stacked = np.stack(ready)
    synced = stacked.max(axis=0) + problem.sync[stages, start, end]
    source = np.repeat(stages, len(splits), axis=1)
    if problem.tied:
        source[[0, -1]] = np.where(synced[0] >= synced[-1], 0, p - 1)
        synced[[0, -1]] = np.maximum(synced[0], synced[-1]) + problem.embedding
    done = synced + problem.finish[stages, start, end]
    columns = np.arange(len(splits))
    last = done.argmax(axis=0)
    step_time = done[last, columns]
    if not harvest:
        return Evaluation(step_time, None)
    stage = source[last, columns]
    lane_of = stacked[:, stage, columns].argmax(axis=0)
    found = []
    for index, (graph, times, ends) in enumerate(runs):
        own = np.flatnonzero(lane_of == index)
        if own.size:
            part = Times(times.forward[:, own], times.backward[:, own], times.send[:, own])
            path = trace(graph, part, ends[:, own], graph.last_backward[stage[own]])
            sends = (path.transfers * part.transfers).sum(axis=0)
            found.append(
                Cuts(
                    path.weights[:p].T,
                    path.weights[p:].T,
                    sends,
                    np.full(own.size, index),
                    stage[own],
                )
            )
    return Evaluation(step_time, join_cuts(found))


def join_cuts(parts: list[Cuts]) -> Cuts:
    """All different cuts of several sets."""
    rows = np.concatenate(
        [np.column_stack([c.forward, c.backward, c.sends, c.lane, c.stage]) for c in parts]
    )
    rows = np.unique(rows, axis=0)
    p = parts[0].forward.shape[1]
    return Cuts(
        rows[:, :p], rows[:, p : 2 * p], rows[:, 2 * p], rows[:, 2 * p + 1], rows[:, 2 * p + 2]
    )


def choose(cuts: Cuts, keep: Array) -> Cuts:
    """The cuts with these indices."""
    return Cuts(
        cuts.forward[keep], cuts.backward[keep], cuts.sends[keep], cuts.lane[keep], cuts.stage[keep]
    )
