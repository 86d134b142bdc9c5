"""Closed forms for many shapes at once: the work bound, and what stages of whole blocks refute.

N shapes, U runs of equal layers, J node groups, P stages at most. All of a bound is sums, products
and quotients of positive numbers, a few hundred at most, in double precision: each is wrong by less
than 1e-13 of itself, and `MARGIN` is taken off. What would cancel (c_i below) is not used.

Work. The slot of stage i of replica r, on group j, is busy for t with each of m_r micro-batches,
one at a time, whatever the schedule, and then comes the tail of the stage: T >= m_r t + s + start.
Give the groups weights w_j > 0 and add this up over all slots, times w. A replica has each layer x
once, on some group: it adds w_j (m_r t_xj + s_xj), at least the least over j. If all have
m_r = M / dp that is so for all replicas alike; if not, sum_r m_r = M, and w_j m_r t_xj and w_j s_xj
are each at least their own least. Any weights are valid; these are 1 / sum_x (M t_xj + dp s_xj).

Granularity. All replicas have m micro-batches; or, where these may be unlike, look at the replica
with the most, which has m = M / dp, rounded up, or more: what follows only grows with them. By the
latency paths that a schedule states of stage i (`Missed`), the last backward of the first stage
ends no earlier than the latency, the sum of all t of the replica, but for weight gradients split
off, plus (m - 1) t_i less what the path misses of stage i; then comes the tail of the first stage.
Transfers and tied embeddings are left out. A kind of operation has at most some share of t in any
layer on any group used, so with c_i m - 1 less the sum over kinds of that share times the number
missed, for the better path, and as a stage is busy for its work and then has its tail,

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
from numpy.typing import NDArray

from formulations.plan import GRADIENTS_SPLIT, Shape
from formulations.schedules import SCHEDULES
from solver.verify.bounds import Prover, shape_key
from solver.verify.least_costs import LeastCosts

Numbers = NDArray[np.float64]
Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Taken off every bound, relative.
MARGIN = 1e-12
#: No bound is above this, so that it stays within 64 bits.
LARGEST = float(1 << 60)


def whole_ns(bound: Numbers) -> Array:
    """Rounded up, as times are whole, less a margin for float noise."""
    rounded: Array = np.ceil(np.minimum(bound * (1 - MARGIN), LARGEST)).astype(np.int64)
    return rounded


def passes_left(shapes: Sequence[Shape], shares: Numbers, micro_batches: Array) -> Numbers:
    """[N, P] c_i of one chunk per device, see `whole_blocks`; inf beyond the last stage.

    shares: [3, N] most that a kind of operation has of t. micro_batches: [N].
    """
    pp = np.array([[shape.pp] for shape in shapes])
    stage = np.arange(int(pp.max()))
    left = np.full((len(shapes), len(stage)), -np.inf)
    for schedule in {shape.schedule for shape in shapes}:
        rows = np.flatnonzero([shape.schedule == schedule for shape in shapes])
        m, own = micro_batches[rows, None], np.minimum(stage, pp[rows] - 1)
        for path in SCHEDULES[schedule].missed(pp[rows], own, m, np.ones_like(m)):
            kinds = zip(shares[:, rows, None], path, strict=True)
            missed = sum((share * number for share, number in kinds), np.zeros(own.shape))
            left[rows] = np.maximum(left[rows], m - 1 - missed)
    return np.where(stage < pp, left, np.inf)


class ClosedForms:
    """What the bounds of some shapes of one instance are made of, and the work bound."""

    def __init__(self, prover: Prover, shapes: Sequence[Shape]) -> None:
        self.prover, self.shapes = prover, shapes
        runs = prover.instance.workload.layer_runs
        self.counts = np.array([run.count for run in runs])
        self.starts = np.cumsum(self.counts) - self.counts
        self.even = prover.instance.search.micro_batches == "even"

    def column(self, name: str) -> Array:
        """[N] a field of the shapes."""
        return np.array([getattr(shape, name) for shape in self.shapes], dtype=np.int64)

    @cached_property
    def costs(self) -> list[LeastCosts]:
        """[N] what communication and optimizer cost at least."""
        return [LeastCosts(self.prover.instance, shape) for shape in self.shapes]

    @cached_property
    def layers(self) -> Numbers:
        """[3, N, U, J] forward, backward, weight gradients split off, of one layer of each run."""
        found: dict[tuple[object, ...], int] = {}
        rows: list[tuple[Array, Array, Array]] = []
        index = []
        for shape in self.shapes:
            splits = SCHEDULES[shape.schedule].splits_backward
            exchanges = (shape.zero, shape.dp, shape.nodes_used)
            key = (
                *shape_key(self.prover.instance, shape),
                splits,
                *exchanges[: 3 * (shape.zero >= GRADIENTS_SPLIT)],
            )
            if key not in found:
                found[key] = len(rows)
                times = self.prover.times_of(shape)
                weight = times.weight_ns[self.starts] * splits
                backward = times.backward_ns[self.starts] - weight
                rows.append((times.forward_ns[self.starts], backward, weight))
            index.append(found[key])
        return np.array(rows, dtype=np.float64).swapaxes(0, 1)[:, index]

    @cached_property
    def work(self) -> Numbers:
        """[N, U, J] all that one layer takes per micro-batch."""
        work: Numbers = self.layers.sum(axis=0)
        return work

    @cached_property
    def _tails(self) -> tuple[Numbers, Numbers]:
        known: dict[tuple[object, ...], tuple[Array, int]] = {}
        tail, start = np.zeros(self.work.shape), np.zeros(len(self.shapes))
        for i, one in enumerate(self.costs):
            shape = one.shape
            experts = shape.ep, shape.etp
            key = (shape.degrees, shape.dp, shape.pp, shape.zero, shape.nodes_used, experts)
            if key not in known:
                known[key] = one.tail_ns()
            tail[i][:, list(one.used)], start[i] = known[key]
        return tail, start

    @property
    def tail(self) -> Numbers:
        """[N, U, J] what follows the last backward, of one layer; 0 for groups not used."""
        return self._tails[0]

    @property
    def start(self) -> Numbers:
        """[N] start-up of sync and gather."""
        return self._tails[1]

    @cached_property
    def nodes(self) -> Array:
        """[N, J] nodes used."""
        return self.column("nodes_used")

    @cached_property
    def slots(self) -> Numbers:
        """[N, J] slots of all nodes used of a group."""
        gpus = [group.gpus_per_node for group in self.prover.instance.cluster.groups]
        sizes = [
            [n // slot.width for n, slot in zip(gpus, shape.degrees, strict=True)]
            for shape in self.shapes
        ]
        slots: Numbers = (self.nodes * np.array(sizes)).astype(np.float64)
        return slots

    @cached_property
    def total(self) -> Array:
        """[N] micro-batches of a step."""
        whole: Array = self.prover.instance.workload.global_batch // self.column("micro_batch")
        return whole

    def least(self, values: Numbers, among: Mask) -> Numbers:
        """[N, U] least of [N, U, J] over the groups of `among` [N, J]."""
        least: Numbers = np.where(among[:, None, :], values, np.inf).min(axis=2)
        return least

    def work_ns(self) -> Array:
        """[N] the work bound."""
        used = self.nodes > 0
        work = self.work * self.total[:, None, None]
        tail = self.tail * self.column("dp")[:, None, None]
        weights = 1 / np.maximum(((work + tail) * self.counts[:, None]).sum(axis=1), 1)
        scale = weights[:, None, :]
        if self.even:
            least = self.least(scale * (work + tail), used)
        else:
            least = self.least(scale * work, used) + self.least(scale * tail, used)
        speed = (weights * self.slots).sum(axis=1)
        return whole_ns((least * self.counts).sum(axis=1) / speed + self.start)


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
