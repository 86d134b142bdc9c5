"""Claims that stages of whole blocks refute, for many shapes at once: see `closed_forms` for terms.

All replicas have m micro-batches; or, where these may be unlike, look at the replica with the most,
which has m = M / dp, rounded up, or more: what follows only grows with them. By the latency paths
that a schedule states of stage i (`Missed`), the last backward of the first stage ends no earlier
than the latency, the sum of all t of the replica, but for weight gradients split off, plus
(m - 1) t_i less what the path misses of stage i; then comes the tail of the first stage. Transfers
and tied embeddings are left out. A kind of operation has at most some share of t in any layer on
any group used, so with c_i m - 1 less the sum over kinds of that share times the number missed, for
the better path, and as a stage is busy for its work and then has its tail,

    T >= start + latency + c_i t_i + tail_0,    T >= start + m t_i + tail_i.

Let A be the fastest groups of nodes, B the others used. Some replica has no more stages on A than
its slots over dp, rounded down; if none, only B counts. Where micro-batches are unlike the replica
is given: a node of c slots in a row has c / dp of its stages, rounded up or down, so it has no more
on A than their nodes have rounded up, nor than those of B leave it of pp, rounded down.

If the step of such a replica takes T, then by the above stage i has no more blocks than fit: of the
least block of B, or, on as many stages as A may have, of all groups. It leaves as many to the
others as these need. If all stages together have fewer blocks than the model, there is no such
replica. The latency is at least what all blocks take on A if they may be there, on B else. No more
blocks are on A than its stages hold, so with more of them on B it is longer, and the first stage
has what the others do not hold, so its tail is: stages hold fewer. This is repeated, each time by
what was shown before. Blocks count 1 each, and are whole; or by their work, and are not.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from solver.verify.closed_forms import MARGIN, Array, ClosedForms, Mask, Numbers, passes_left

#: More blocks than all stages can hold.
NEVER = 1 << 40
#: Times that the latency is worked out.
STEPS = 6
#: Stages with c_i below this share of m are not used.
LEAST_SHARE = 1e-3
#: Added to T, relative: c_i are wrong by more than other terms, as they cancel, see `LEAST_SHARE`.
SLACK = 10 * MARGIN
#: Stands for no time of a block; by `SLACK` there is more room wherever there is any.
TINY = 1e-30


def refuted(forms: ClosedForms, below_ns: Sequence[int]) -> Mask:
    """[N] whether no plan of a shape has a step time below this; one chunk per device."""
    if not forms.shapes or not any(layer.is_block for layer in forms.prover.layers):
        return np.zeros(len(forms.shapes), dtype=bool)
    known = [
        blocks.refuted(np.array(below_ns), *parts)
        for blocks in (_Blocks(forms, alike) for alike in (True, False))
        for parts in blocks.parts()
    ]
    found: Mask = np.any(known, axis=0) & (forms.column("vpp") == 1)
    return found


class _Blocks:
    """N shapes, P stages at most, J node groups, U runs of equal layers.

    alike: whether blocks are counted, so that they are whole; or by their work.
    """

    def __init__(self, forms: ClosedForms, alike: bool) -> None:
        self.forms, search, self.alike = forms, forms.prover.instance.search, alike
        runs = forms.prover.instance.workload.layer_runs
        self.is_block = np.array([run.layer.is_block for run in runs])
        self.used = forms.nodes > 0
        work = forms.least(forms.work, self.used)[:, self.is_block]
        work = np.ones_like(work) if alike else np.maximum(work, 1)
        self.weight = work / work.min(axis=1, keepdims=True)  # [N, runs of blocks] 1 at least
        self.number = (self.weight * forms.counts[self.is_block]).sum(axis=1)
        self.least = 0 if search.embedding_only_stages else 1
        self.pp, self.dp = forms.column("pp"), forms.column("dp")
        self.most = self.number - self.least * (self.pp - 1)
        self.micro_batches = -(-forms.total // self.dp)
        self.passed: Numbers = forms.layers[0] + forms.layers[1]  # [N, U, J] what latency counts

    @cached_property
    def c(self) -> Numbers:
        """[N, P] c_i; inf beyond the last stage."""
        counted = self.used[:, None, :] & (self.forms.work > 0)
        shares = self.forms.layers / np.maximum(self.forms.work, 1)
        shares = np.where(counted, shares, 0.0).max(axis=(2, 3))
        return passes_left(self.forms.shapes, shares, self.micro_batches)

    def parts(self) -> Iterator[tuple[Mask, Array]]:
        """[N, J] groups of A and [N] stages there at most, for all A."""
        whole = (self.forms.work * self.forms.counts[:, None]).sum(axis=1)
        rank = np.argsort(np.argsort(np.where(self.used, whole, np.inf), axis=1, kind="stable"))
        for k in range(1, max(self.used.shape[1], 2)):
            inside = rank < np.minimum(k, self.used.sum(axis=1) - 1)[:, None]
            yield inside, np.clip(self._stages(inside), 0, self.pp)

    def _stages(self, inside: Mask) -> Array:
        """[N] most stages on these groups [N, J]."""
        dp, slots = self.dp[:, None], self.forms.slots.astype(np.int64)
        if self.forms.even:
            return np.asarray((slots * inside).sum(axis=1) // self.dp)
        each = slots // np.maximum(self.forms.nodes, 1)
        up, down = (self.forms.nodes * part for part in (-(-each // dp), each // dp))
        others = self.pp - (down * ~inside).sum(axis=1)
        return np.asarray(np.minimum((up * inside).sum(axis=1), others))

    def refuted(self, below_ns: Array, inside: Mask, fast: Array) -> Mask:
        """[N] whether no plan is below these, by a replica with so many stages inside."""
        sets = (self.used, self.used & ~inside)
        work, slow_work = (self._of_block(self.forms.work, among) for among in sets)
        tail, slow_tail = (self._of_block(self.forms.tail, among) for among in sets)
        passed, slow = (self.forms.least(self.passed, among)[:, self.is_block] for among in sets)
        gain = ((slow - passed) / self.weight).max(axis=1)
        on_all, on_slow = (own @ self.forms.counts[self.is_block] for own in (passed, slow))
        limit = (below_ns - 1) * (1 + SLACK) - self.forms.start
        on_fast, first = np.where(fast > 0, self.number, 0), np.full(len(limit), float(self.least))
        found = np.zeros(len(limit), dtype=bool)
        for _ in range(STEPS):
            latency = np.maximum(on_slow - on_fast * gain, on_all)
            room = limit - self._fixed_ns - latency
            on_a = self._held(limit, room, first * tail, work, tail)
            on_b = self._held(limit, room, first * tail, slow_work, slow_tail)
            held = on_b.sum(axis=1) + _largest(on_a - on_b, fast)
            found |= held * (1 + SLACK) < self.number
            on_fast = np.minimum(_largest(np.maximum(on_a, 0), fast), on_fast)
            first = np.maximum(first, self.number - held + on_b[:, 0])
        return found

    def _of_block(self, values: Numbers, among: Mask) -> Numbers:
        """[N] least of [N, U, J] over blocks and these groups."""
        each = values[:, self.is_block] / self.weight[:, :, None]
        least: Numbers = self.forms.least(each, among).min(axis=1)
        return least

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """[U] layers of a run, no blocks, that are surely on the first stage, and on the last."""
        is_block = [layer.is_block for layer in self.forms.prover.layers]
        blocks = [x for x, one in enumerate(is_block) if one]
        blocks = blocks if self.least else [1, len(is_block) - 2]
        run = np.repeat(np.arange(len(self.forms.counts)), self.forms.counts)
        parts = run[: blocks[0]], run[blocks[-1] + 1 :]
        first, last = (np.bincount(own, minlength=len(self.is_block)) for own in parts)
        return first * ~self.is_block, last * ~self.is_block

    @cached_property
    def _fixed_ns(self) -> Numbers:
        """[N] of what is no block the latency and tail of stage 0."""
        tails = self.forms.least(self.forms.tail, self.used)
        passed = self.forms.least(self.passed, self.used) * ~self.is_block
        fixed: Numbers = (tails * self.places[0] + passed * self.forms.counts).sum(axis=1)
        return fixed

    @cached_property
    def others(self) -> Numbers:
        """[N, P] work of what is no block, as far as it is known where it is."""
        work, found = self.forms.least(self.forms.work, self.used), np.zeros(self.c.shape)
        found[:, 0] = work @ self.places[0]
        found[np.arange(len(found)), self.pp - 1] += work @ self.places[1]
        return found

    def _held(
        self, limit: Numbers, room: Numbers, behind_ns: Numbers, block_ns: Numbers, tail_ns: Numbers
    ) -> Numbers:
        """[N, P] most blocks of every stage; -NEVER if it cannot be; 0 beyond the last."""
        m, c = self.micro_batches[:, None], np.where(self.c < np.inf, self.c, 0)
        c = np.where(c > LEAST_SHARE * m, c, 0)
        each = np.stack([c * block_ns[:, None], m * block_ns[:, None] + tail_ns[:, None] + 0 * c])
        left = (room - behind_ns)[:, None] - c * self.others
        left[:, 0], each[0, :, 0] = room - c[:, 0] * self.others[:, 0], each[0, :, 0] + tail_ns
        known = np.stack([left, limit[:, None] - m * self.others])
        fits = (known / np.maximum(each, TINY)).min(axis=0)
        held = np.minimum(np.floor(fits) if self.alike else fits, self.most[:, None])
        held = np.where(held >= self.least, held, -NEVER)
        return np.where(np.isinf(self.c), 0.0, held)


def _largest(values: Numbers, number: Array) -> Numbers:
    """[N] sum of so many [N] of the largest values [N, P], none of them negative."""
    ordered = np.cumsum(np.maximum(np.sort(values, axis=1)[:, ::-1], 0), axis=1)
    padded = np.concatenate([np.zeros((len(values), 1)), ordered], axis=1)
    sums: Numbers = np.take_along_axis(padded, number[:, None], axis=1)[:, 0]
    return sums
