"""Claims that stages of whole blocks refute: for many shapes at once; see `filling` for terms.

Let A be some groups of nodes, B the others used, and look at a replica that has f stages on A at
most, as in `filling`. If its step takes T, then of every stage i, with c_i > 0,

    t_i <= (T - once - latency - tail_0) / c_i,

so i has no more blocks than fit there: of the least block of B, or of A on f stages. It leaves as
many to the others as these need. If all stages together have fewer blocks than the model, there is
no such replica. The latency is at least what all blocks take on A if they may be there, on B else.
No more blocks are on A than f stages hold, so with more of them on B it is longer, and stages hold
fewer: this is repeated, each time by what was shown before.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from formulations.plan import Shape
from solver.verify.bounds import Prover
from solver.verify.closed_forms import MARGIN, Array, ClosedForms, Mask, Numbers
from solver.verify.filling import Filling
from solver.verify.stage_loads import LEAST_SHARE

#: More blocks than all stages can hold.
NEVER = 1 << 40
#: Times that the latency is worked out.
STEPS = 6
#: Added to T, relative: c_i are wrong by more than other terms, as they cancel, see `LEAST_SHARE`.
SLACK = 10 * MARGIN


def refuted(prover: Prover, shapes: Sequence[Shape], below_ns: Sequence[int]) -> Mask:
    """[N] whether no plan of a shape has a step time below this."""
    if not shapes or not any(layer.is_block for layer in prover.layers):
        return np.zeros(len(shapes), dtype=bool)
    blocks = _WholeBlocks(Filling(ClosedForms(prover, shapes)))
    known = [blocks.refuted(np.array(below_ns), *parts) for parts in blocks.parts()]
    found: Mask = np.any(known, axis=0) & (blocks.forms.column("vpp") == 1)
    return found


class _WholeBlocks:
    """N shapes, P stages at most, J node groups."""

    def __init__(self, filling: Filling) -> None:
        self.filling, self.forms, self.loads = filling, filling.forms, filling.loads
        runs = filling.forms.prover.instance.workload.layer_runs
        self.is_block = np.array([run.layer.is_block for run in runs])
        self.number = int(self.forms.counts[self.is_block].sum())
        search = filling.forms.prover.instance.search
        self.least = 0 if search.embedding_only_stages else 1
        self.last = self.forms.column("pp") - 1
        self.most = self.number - self.least * self.last
        self.used = self.forms.nodes > 0

    def parts(self) -> Iterator[tuple[Mask, Array]]:
        """[N, J] groups of A, the fastest ones, and [N] stages there at most."""
        numbers, rows = self.used.sum(axis=1), np.arange(len(self.used))
        for k in range(1, max(self.used.shape[1], 2)):
            size = np.minimum(k, numbers - 1)
            inside = self.used & (np.argsort(self.loads.order, axis=1) < size[:, None])
            stages = np.floor(self.loads.ends[rows, np.maximum(size - 1, 0)]).astype(np.int64)
            yield inside, np.where(size > 0, np.minimum(stages, self.last + 1), 0)

    def refuted(self, below_ns: Array, inside: Mask, fast: Array) -> Mask:
        """[N] whether no plan is below these, by a replica with so many stages inside."""
        each, passed = self._of_block(self.forms.work), self._of_block(self.filling.passed)
        slow_ns, slow_passed = (
            np.where(self.used & ~inside, own, np.inf).min(axis=1) for own in (each, passed)
        )
        fast_ns, fast_passed = (
            np.where(self.used, own, np.inf).min(axis=1) for own in (each, passed)
        )
        known_ns = (below_ns - 1) * (1 + SLACK) - self._fixed_ns
        on_fast = np.where(fast > 0, self.number, 0)
        found = np.zeros(len(below_ns), dtype=bool)
        for _ in range(STEPS):
            room = known_ns - on_fast * fast_passed - (self.number - on_fast) * slow_passed
            on_a, on_b = self._held(room, fast_ns), self._held(room, slow_ns)
            found |= on_b.sum(axis=1) + _largest(on_a - on_b, fast) < self.number
            on_fast = np.minimum(_largest(np.maximum(on_a, 0), fast), on_fast)
        return found

    def _of_block(self, values: Numbers) -> Numbers:
        """[N, J] least of [N, U, J] over blocks."""
        least: Numbers = values[:, self.is_block].min(axis=1)
        return least

    @property
    def _fixed_ns(self) -> Numbers:
        """[N] once, tail of the first stage, latency of what is no block."""
        first = self.filling.places[0]
        tails = self.forms.least(self.forms.tail, self.used)
        others = self.forms.least(self.filling.passed, self.used) * ~self.is_block
        each = (tails * first + others * self.forms.counts).sum(axis=1)
        fixed: Numbers = each + self.forms.start + self.filling.once
        return fixed

    def _held(self, room: Numbers, block_ns: Numbers) -> Array:
        """[N, P] most blocks of every stage; -NEVER if it cannot be; 0 beyond the last."""
        c, work = self.loads.c, self.forms.least(self.forms.work, self.used) * ~self.is_block
        first, later = ((work * own).sum(axis=1) for own in self.filling.places)
        usable = c > LEAST_SHARE * self.loads.micro_batches[:, None]
        time = np.where(usable, room[:, None] / np.where(usable, c, 1.0), np.inf)
        time[:, 0] -= first
        time[np.arange(len(time)), self.last] -= later
        held = np.minimum(np.floor(time / np.maximum(block_ns, 1)[:, None]), self.most[:, None])
        held = np.where(held >= self.least, held, -NEVER)
        return np.where(np.isinf(c), 0, held).astype(np.int64)


def _largest(values: Array, number: Array) -> Array:
    """[N] sum of so many [N] of the largest values [N, P], none of them negative."""
    ordered = np.cumsum(np.maximum(np.sort(values, axis=1)[:, ::-1], 0), axis=1)
    padded = np.concatenate([np.zeros((len(values), 1), dtype=np.int64), ordered], axis=1)
    sums: Array = np.take_along_axis(padded, number[:, None], axis=1)[:, 0]
    return sums
