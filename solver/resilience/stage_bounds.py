"""Lower bounds of all templates of a size, by their number of stages: one pass for all numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formulations.units import ceil_div
from solver.enumeration.problem import INFINITY, Array, Mask
from solver.resilience.graph import State, Step, TemplateGraph


@dataclass(frozen=True)
class StageBounds:
    """Bounds by number of stages; per place [r, n, n] layers that may stand before r stages."""

    least: dict[int, int]
    allowed: list[Mask]


def stage_bounds(graph: TemplateGraph, micro_batches: int, cutoff: int) -> StageBounds:
    """Per number of stages, a lower bound of every template whose step is below `cutoff`.

    Stage i of p waits for micro-batch 0 to come down to it, works for m t_i, and its last
    backward goes up again: T >= m t_i + sum over k < i of t_k and of the transfers between k
    and k + 1, both ways. Summed over all stages, with r_k = p - 1 - k stages after stage k,

        p T  >=  sum over k of (m + r_k) t_k + (r_k + 1) (transfers between k - 1 and k).

    The right side is additive, and from the last stage on its terms do not depend on p: one
    pass gives its least value for every p, over stages that have room and may be part of a
    template below the cutoff: by the first inequality, and by latency plus bottleneck (see
    `solver.enumeration.completion`), with the least work of the layers before and after them.
    INFINITY where there are no such stages: with INFINITY as cutoff, iff nothing fits into memory.
    """
    if not graph.numbers:
        return StageBounds({}, [])
    sums = _Sums(graph, micro_batches, cutoff)
    for state in reversed(graph.steps):
        sums.add(state, graph.steps[state])
    least = sums.table[graph.start][:, 0]
    bounds = {
        p: ceil_div(int(least[p]), p) if least[p] < INFINITY else int(INFINITY)
        for p in graph.numbers
    }
    return StageBounds(bounds, sums.allowed)


def _least_work(work: Array) -> tuple[Array, Array]:
    """[n] least sum of stage times of any stages on the layers before, and from, each boundary."""
    least = work.min(axis=0)
    size = len(least)
    before, after = np.full(size, INFINITY), np.full(size, INFINITY)
    before[0] = after[-1] = 0
    for end in range(1, size):
        before[end] = (before[:end] + least[:end, end]).min()
        start = size - 1 - end
        after[start] = (after[start + 1 :] + least[start, start + 1 :]).min()
    return before, after


def _by_length(cost: Array) -> list[tuple[int, Array]]:
    """Number of layers, and [r, first layer] of a cost [r, n, n], for numbers that may stand."""
    first, end = np.nonzero((cost < INFINITY).any(axis=0))
    found = []
    for length in np.unique(end - first).tolist():
        starts = np.arange(cost.shape[-1] - length)
        found.append((length, np.ascontiguousarray(cost[:, starts, starts + length])))
    return found


class _Sums:
    """Least right sides of `stage_bounds`: per state, [r, layers] of what comes after."""

    def __init__(self, graph: TemplateGraph, micro_batches: int, cutoff: int) -> None:
        places, m = graph.places, micro_batches
        self.graph, self.places = graph, places
        self.most = max(graph.numbers)
        self.after = np.arange(self.most)[:, None]
        work = np.where(places.room > 0, places.forward + places.backward, INFINITY)
        before, onward = _least_work(work)
        least = np.minimum(places.forward, places.backward)
        after = self.after[..., None]
        warm = np.minimum(after, m - 1) if places.schedule == "1f1b" else 0 * after
        fits = graph.room_by_followers(m, self.most)
        self.cost, self.allowed = [], []
        for x, time in enumerate(work):
            busy = before[:, None] + np.where(time < INFINITY, m * time, INFINITY)
            whole = busy + onward - warm * least[x]
            allowed = (busy < cutoff) & (whole < cutoff) & fits[x]
            self.allowed.append(allowed)
            self.cost.append(_by_length(np.where(allowed, (m + after) * time, INFINITY)))
        self.table = dict[State, Array]()

    def add(self, state: State, steps: Sequence[Step]) -> None:
        """The sums of a state, after those of all states that follow it."""
        size = self.places.num_layers + 1
        table = np.full((self.most + 1, size), INFINITY)
        if self.graph.is_end(state):
            table[0, -1] = 0
        for step in steps:
            rest = self.table[step.after][:-1]
            send = 0
            if (last := state.place) is not None:
                pair = int(step.fresh), last, step.place
                send = int(self.places.send[pair] + self.places.send_back[pair])
            rows = np.flatnonzero((rest < INFINITY).any(axis=1))
            if not len(rows):
                continue
            own = slice(rows[0], rows[-1] + 1)
            into = table[rows[0] + 1 : rows[-1] + 2]
            sends = (self.after[own] + 1) * send
            for length, cost in self.cost[step.place]:
                size = cost.shape[-1]
                np.minimum(
                    into[:, :size], rest[own, length:] + cost[own] + sends, out=into[:, :size]
                )
        self.table[state] = table
