"""The pipeline bound of a shape: latency plus bottleneck, whatever split, order and shares.

Proof. With M micro-batches, one replica has m = ceil(M / dp) or more; look at that one, or, if all
have the same number, at any. Its p stages have f_i, b_i, t_i = f_i + b_i per micro-batch.

(1) One stage i, w = min(p - 1 - i, m - 1) in 1F1B. Micro-batch 0 goes down all stages and back up
to B_i(0); then stage i has left m - 1 backwards and the forwards that were not yet done, m - 1 - w;
then micro-batch m - 1 goes up to stage 0. Or: micro-batch 0 goes down to stage i, which does all
forwards and, before the last of them, m - 1 - w backwards; then micro-batch m - 1 goes down and
back up to stage 0. Both pass each stage once each way, and all transfers, so the last backward of
stage 0 ends no earlier than

    sum_k t_k + transfers both ways + (m - 1) t_i - w min(f_i, b_i).

In GPipe all forwards of stage i come before micro-batch m - 1 goes down to the last stage; there
B(0) follows, which goes up to stage i, whose m backwards come before B(m - 1) goes up: the same
with w = 0. Blocking sends only lengthen operations, and more micro-batches than m each path.

(2) After that come sync, embedding, optimizer and gather of stage 0; see `least_costs` for these
and for the transfers.

(3) Every stage lies on some node group j used: times, memory (in flight as with m) and optimizer
are those of j. A replica has at most nodes_j * visits_j stages on group j. If all replicas have the
same number of micro-batches, we may look at the one with the fewest stages on the fastest group,
which has at most a dp-th of that group's slots. The slowest group, and others if the table would
get too large, may be taken any number of times.

So T >= the minimum, over splits and groups of the stages that (3) allows, of the sum of stage costs
(latency with tail) plus the largest bottleneck term. For a cap on the terms the sum alone is a
shortest path; lowering the cap from one solution's largest term to below it meets every candidate.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from formulations.costs.memory import capacity_bytes
from formulations.plan import Shape
from formulations.schedules import in_flight
from formulations.units import ceil_div
from solver.verify.bounds import Prover, interval_sums
from solver.verify.least_costs import LeastCosts

Array = NDArray[np.int64]

#: More than any time in ns; sums of two stay within 64 bits.
NEVER = 1 << 61
#: Numbers of stages per group that a table distinguishes at most.
LARGEST_TABLE = 128


@dataclass(frozen=True)
class Path:
    """A cheapest choice of splits and groups: sum of its costs and largest of its terms."""

    total: int
    largest: int


class PipelineBound:
    """Stage costs of one shape; G groups used, n = L + 1."""

    def __init__(self, prover: Prover, shape: Shape) -> None:
        self.prover, self.shape = prover, shape
        self.least = LeastCosts(prover.instance, shape)
        total = prover.instance.workload.global_batch // shape.micro_batch
        self.micro_batches = ceil_div(total, shape.dp)
        times = prover.times(shape.tp, shape.micro_batch, shape.recompute)
        used = self.least.used
        self.forward = np.stack([interval_sums(times.forward_ns[:, j]) for j in used])
        self.backward = np.stack([interval_sums(times.backward_ns[:, j]) for j in used])
        self.work = self.forward + self.backward  # [G, n, n]
        layers, once = self.least.tail_ns()
        self.tail = np.stack([interval_sums(column) for column in layers.T])
        self.once = once + self.least.embedding_ns() + 2 * self.least.send_ns()

    @cached_property
    def caps(self) -> tuple[int, ...]:
        """Per group used: most stages of the replica on it; 0 for any number. See (3)."""
        least, shape = self.least, self.shape
        caps = [min(shape.pp, n * most) for n, most in zip(least.counts, least.visits, strict=True)]
        speed = np.argsort(self.work[:, 0, -1], kind="stable").tolist()
        fastest = speed[0]
        if self.prover.instance.search.micro_batches == "even":
            caps[fastest] = least.counts[fastest] * least.slots[fastest] // shape.dp
        counted: list[int] = []
        for g in speed[:-1]:
            if prod(caps[one] + 1 for one in (*counted, g)) <= LARGEST_TABLE:
                counted.append(g)
        return tuple(cap if g in counted else NEVER for g, cap in enumerate(caps))

    @cached_property
    def axes(self) -> tuple[int | None, ...]:
        """Per group used: the axis of the table that counts its stages."""
        counted = [g for g, cap in enumerate(self.caps) if cap < NEVER]
        return tuple(
            counted.index(g) if g in counted else None for g in range(len(self.least.used))
        )

    @cached_property
    def terms(self) -> list[Array]:
        """Per stage: [G, n, n] bottleneck term, NEVER where the layers may not stand."""
        shape, m = self.shape, self.micro_batches
        capacities = capacity_bytes(self.prover.instance)[list(self.least.used), None, None]
        static, activation = self.prover.memory(shape)
        least = np.minimum(self.forward, self.backward)
        terms = []
        for k in range(shape.pp):
            saved = 0 if shape.schedule == "gpipe" else min(shape.pp - 1 - k, m - 1)
            held = in_flight(shape.schedule, shape.pp, k, m)
            fits = self.prover.enough_blocks & (static + held * activation <= capacities)
            terms.append(np.where(fits, (m - 1) * self.work - saved * least, NEVER))
        return terms

    def bound_ns(self, below: int = NEVER) -> int:
        """The bound, or `below` if that is less; NEVER if no split fits the memory."""
        best, cap = below, below - 1
        while cap >= 0 and (path := self._cheapest(cap)) is not None:
            best = min(best, path.total + path.largest)
            cap = min(path.largest, best - path.total) - 1
        return best

    def _stage_costs(self, k: int, cap: int) -> Array:
        """[G, n, n] cost of stage k; NEVER where its term is above the cap."""
        cost = self.work if k else self.work + self.tail
        return np.where(self.terms[k] <= cap, cost, NEVER)

    def _cheapest(self, cap: int) -> Path | None:
        """Stages of least total cost with no term above `cap`; None if there are none.

        tables[k][.., a]: least cost of stages ..k-1 for layers [0, a), by stages per counted group.
        """
        size = self.work.shape[-1]
        table = np.full((*(c + 1 for c in self.caps if c < NEVER), size), NEVER, dtype=np.int64)
        table[(0,) * table.ndim] = 0
        tables = [table]
        for k in range(self.shape.pp):
            tables.append(self._extended(tables[-1], self._stage_costs(k, cap)))
        ends = tables[-1][..., -1]
        total = int(ends.min())
        if total >= NEVER:
            return None
        at = (*(int(i) for i in np.unravel_index(int(ends.argmin()), ends.shape)), size - 1)
        return Path(total + self.once, self._largest_term(tables, cap, at))

    def _extended(self, table: Array, costs: Array) -> Array:
        """The table with one stage more."""
        longer = np.full_like(table, NEVER)
        for g, axis in enumerate(self.axes):
            reached = (table[..., :, None] + costs[g]).min(axis=-2)
            source, target = _shifted(table.ndim, axis)
            longer[target] = np.minimum(longer[target], reached[source])
        return longer

    def _largest_term(self, tables: list[Array], cap: int, at: tuple[int, ...]) -> int:
        """Largest term on the cheapest path that ends at entry `at` of the last table."""
        largest = 0
        for k in reversed(range(self.shape.pp)):
            costs = self._stage_costs(k, cap)
            g, begin, before = next(
                (g, int(begins[0]), before)
                for g, axis in enumerate(self.axes)
                if (before := _one_less(at, axis)) is not None
                and (
                    begins := np.flatnonzero(
                        tables[k][before] + costs[g][:, at[-1]] == tables[k + 1][at]
                    )
                ).size
            )
            largest = max(largest, int(self.terms[k][g, begin, at[-1]]))
            at = (*before, begin)
        return largest


def _shifted(ndim: int, axis: int | None) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Source and target slices that count one stage more along an axis."""
    source, target = [slice(None)] * ndim, [slice(None)] * ndim
    if axis is not None:
        source[axis], target[axis] = slice(None, -1), slice(1, None)
    return tuple(source), tuple(target)


def _one_less(at: tuple[int, ...], axis: int | None) -> tuple[int, ...] | None:
    """Counts of an entry with one stage less along an axis; None if there is none."""
    counts = list(at[:-1])
    if axis is not None:
        counts[axis] -= 1
        if counts[axis] < 0:
            return None
    return tuple(counts)
