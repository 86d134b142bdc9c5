"""What chunks of so many layers cost at least, wherever in the chain they begin: see `devices`."""

from functools import cached_property

import numpy as np

from formulations.costs.intervals import interval_maxima, interval_sums
from formulations.costs.memory import LayerMemory
from formulations.schedules import held
from solver.layered.problem import INFINITY, Array, Intervals, Mask, SplitProblem


class LeastChunks:
    """Chunks of one problem, by virtual stage and number of layers.

    n = L + 1, S virtual stages; W ways to recompute, J node groups, T rows of sync and finish.
    """

    def __init__(self, intervals: Intervals, problem: SplitProblem) -> None:
        self.intervals, self.problem = intervals, problem
        self.p, self.v = problem.num_devices, problem.chunks
        self.length, self.size = problem.num_layers, problem.num_layers + 1
        (self.share,) = set(problem.micro_batches)
        self._memories: dict[int, tuple[Array, list[tuple[Array, Array]]]] = {}

    @cached_property
    def _places(self) -> Mask:
        """[S, L, n] whether a virtual stage may have so many layers from this one on."""
        stages, length = self.p * self.v, self.length
        s, first, count = np.ogrid[:stages, :length, : self.size]
        last = first + count
        inside = (first >= s) & (last <= length - (stages - 1 - s))
        inside &= ((s > 0) | (first == 0)) & ((s < stages - 1) | (last == length))
        places: Mask = inside & self.intervals.allowed[first[0], np.minimum(last[0], length)]
        return places

    def _least(self, values: Array) -> Array:
        """[S, n] least of [n, n] over the places of so many layers; INFINITY if there is none."""
        first = np.arange(self.length)[:, None]
        own = values[first, np.minimum(first + np.arange(self.size), self.length)]
        least: Array = np.where(self._places, own, INFINITY).min(axis=1)
        return least

    @cached_property
    def times(self) -> Array:
        """[2, W, J, S, n] forward and backward, by what is recomputed."""
        problem, ways = self.problem, self.intervals.tables.recompute_ns
        forward = np.stack([self._least(own) for own in problem.forward])
        backward = [
            [self._least(own + more) for own, more in zip(problem.backward, extra, strict=True)]
            for extra in (interval_sums(way.T) for way in ways)
        ]
        return np.stack([np.repeat(forward[None], len(ways), axis=0), backward])

    @cached_property
    def tails(self) -> Array:
        """[T, S, n] sync and finish."""
        pairs = zip(self.problem.sync, self.problem.finish, strict=True)
        return np.stack([self._least(sync + finish) for sync, finish in pairs])

    def _memory(self, own: LayerMemory) -> tuple[Array, list[tuple[Array, Array]]]:
        """[S, n] bytes: what stays; per way, of a micro-batch held, and while one recomputes."""
        if id(own) not in self._memories:
            kept = [
                (
                    self._least(interval_sums(way.activation_bytes)),
                    self._least(interval_maxima(way.workspace_bytes)),
                )
                for way in own.kept
            ]
            self._memories[id(own)] = self._least(interval_sums(own.static_bytes)), kept
        return self._memories[id(own)]

    def ways(self, k: int, sizes: Array) -> Array:
        """[J, N] the first way that may have room on device k with chunks of sizes [v, N].

        W where none has. No plan with such chunks takes one before it.
        """
        tables, needs = self.intervals.tables, dict[int, Array]()
        for own in tables.memory:
            if id(own) not in needs:
                needs[id(own)] = self._bytes(k, sizes, own)
        found = []
        for own, most in zip(tables.memory, tables.capacity_bytes.tolist(), strict=True):
            room = needs[id(own)] <= most
            found.append(np.where(room.any(axis=0), room.argmax(axis=0), len(room)))
        return np.stack(found)

    def _bytes(self, k: int, sizes: Array, own: LayerMemory) -> Array:
        """[W, N] that device k needs at least with chunks of these sizes [v, N]."""
        stages = np.arange(k, self.p * self.v, self.p)[:, None]
        static, kept = self._memory(own)
        whole = held(self.problem.schedule, self.p, k, self.share, self.v).whole
        stays = static[stages, sizes].sum(axis=0) + own.fixed_bytes
        return np.stack(
            [
                stays
                + (whole @ activation[stages, sizes]).max(axis=0)
                + workspace[stages, sizes].max(axis=0)
                for activation, workspace in kept
            ]
        )

    def within(self, k: int, cutoff: int) -> Array:
        """[v, N] sizes of chunks with which device k is not busy until the cutoff on every group.

        The other devices have a layer for each of their chunks.
        """
        columns = np.unique(self.problem.stages[k].column)
        work = self.times[:, 0].sum(axis=0)[columns].min(axis=0)
        most = self.length - (self.p - 1) * self.v
        sizes, busy = np.zeros((0, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
        for s in range(k, self.p * self.v, self.p):
            possible = np.flatnonzero(work[s] < INFINITY)
            more = busy[:, None] + self.share * work[s, possible]
            fits = (more < cutoff) & (sizes.sum(axis=0)[:, None] + possible <= most)
            own, count = np.nonzero(fits)
            sizes = np.concatenate([sizes[:, own], possible[None, count]])
            busy = more[own, count]
        return sizes
