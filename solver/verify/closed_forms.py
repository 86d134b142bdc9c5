"""Closed forms for many configs at once: the work bound, and what stages of whole blocks refute.

N configurations, U runs of equal layers, J node groups, P stages at most. All of a bound is sums,
products and quotients of positive numbers, a few hundred at most, in double precision: each is
wrong by less than 1e-13 of itself, and `MARGIN` is taken off. What would cancel (c_i below) is not
used.

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

Let A be the fastest group of nodes, B the others used. Some replica has no more stages on A than
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

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from formulations.costs.intervals import Array, Mask, Numbers
from formulations.plan import Configuration
from formulations.schedules.registry import SCHEDULES
from solver.verify.bounds import Prover, config_key
from solver.verify.epilogue import LeastCosts

#: Taken off every bound, relative.
MARGIN = 1e-12
#: No bound is above this, so that it stays within 64 bits.
LARGEST = float(1 << 60)


def passes_left(configs: Sequence[Configuration], shares: Numbers, micro_batches: Array) -> Numbers:
    """[N, P] c_i of one chunk per device, see `whole_blocks`; inf beyond the last stage.

    shares: [3, N] most that a kind of operation has of t. micro_batches: [N].
    """
    pp = np.array([[config.pp] for config in configs])
    stage = np.arange(int(pp.max()))
    passes = np.full((len(configs), len(stage)), -np.inf)
    for schedule in {config.schedule for config in configs}:
        rows = np.flatnonzero([config.schedule == schedule for config in configs])
        m, rank = micro_batches[rows, None], np.minimum(stage, pp[rows] - 1)
        for path in SCHEDULES[schedule].missed(pp[rows], rank, m, np.ones_like(m)):
            kinds = zip(shares[:, rows, None], path, strict=True)
            missed = sum((share * number for share, number in kinds), np.zeros(rank.shape))
            passes[rows] = np.maximum(passes[rows], m - 1 - missed)
    return np.where(stage < pp, passes, np.inf)


class ClosedForms:
    """What the bounds of some configurations of one instance are made of, and the work bound."""

    def __init__(self, prover: Prover, configs: Sequence[Configuration]) -> None:
        self.prover, self.configs = prover, configs
        runs = prover.instance.workload.layer_runs
        self.counts = np.array([run.count for run in runs])
        self.starts = np.cumsum(self.counts) - self.counts
        self.even = prover.instance.search.micro_batches == "even"

    def column(self, name: str) -> Array:
        """[N] a field of the configurations."""
        return np.array([getattr(config, name) for config in self.configs], dtype=np.int64)

    @cached_property
    def layers(self) -> Numbers:
        """[3, N, U, J] forward, backward, weight gradients split off, of one layer of each run."""
        rows: dict[tuple[object, ...], tuple[Array, Array, Array]] = {}
        keys = []
        for config in self.configs:
            splits = SCHEDULES[config.schedule].splits_backward
            exchanges = (config.shards, config.nodes_used) if config.in_lockstep else None
            keys.append((*config_key(self.prover.instance, config), splits, exchanges))
            if keys[-1] not in rows:
                times = self.prover.times_of(config)
                weight = times.weight_ns[self.starts] * splits
                backward = times.backward_ns[self.starts] - weight
                rows[keys[-1]] = times.forward_ns[self.starts], backward, weight
        return np.array([rows[key] for key in keys], dtype=np.float64).swapaxes(0, 1)

    @cached_property
    def work(self) -> Numbers:
        """[N, U, J] all that one layer takes per micro-batch."""
        return np.asarray(self.layers.sum(axis=0))

    @cached_property
    def tails(self) -> tuple[Numbers, Numbers]:
        """What follows the last backward: [N, U, J] of one layer, 0 for groups not used; [N] once.

        The latter is the start-up of sync and gather.
        """
        tails: dict[tuple[object, ...], tuple[Array, int]] = {}
        tail, start = np.zeros(self.work.shape), np.zeros(len(self.configs))
        for i, config in enumerate(self.configs):
            costs = LeastCosts(self.prover.instance, config)
            place, experts = (config.degrees, config.nodes_used), (config.ep, config.etp)
            key = (*place, config.pp, config.shards, *experts)
            if key not in tails:
                tails[key] = costs.tail_ns()
            tail[i][:, list(costs.config.groups_used)], start[i] = tails[key]
        return tail, start

    @cached_property
    def nodes(self) -> Array:
        """[N, J] nodes used."""
        return self.column("nodes_used")

    @cached_property
    def slots(self) -> Numbers:
        """[N, J] slots of all nodes used of a group."""
        gpus = [group.gpus_per_node for group in self.prover.instance.cluster.groups]
        sizes = [
            [n // slot.width for n, slot in zip(gpus, config.degrees, strict=True)]
            for config in self.configs
        ]
        return np.asarray((self.nodes * np.array(sizes)).astype(np.float64))

    @cached_property
    def total(self) -> Array:
        """[N] micro-batches of a step."""
        return np.asarray(self.prover.instance.workload.global_batch // self.column("micro_batch"))

    def least(self, values: Numbers, among: Mask) -> Numbers:
        """[N, U] least of [N, U, J] over the groups of `among` [N, J]."""
        return np.asarray(np.where(among[:, None, :], values, np.inf).min(axis=2))

    def work_ns(self) -> Array:
        """[N] the work bound."""
        used = self.nodes > 0
        work = self.work * self.total[:, None, None]
        tail = self.tails[0] * self.column("dp")[:, None, None]
        weights = 1 / np.maximum(((work + tail) * self.counts[:, None]).sum(axis=1), 1)
        scale = weights[:, None, :]
        if self.even:
            per_layer = self.least(scale * (work + tail), used)
        else:
            per_layer = self.least(scale * work, used) + self.least(scale * tail, used)
        speed = (weights * self.slots).sum(axis=1)
        bound = (per_layer * self.counts).sum(axis=1) / speed + self.tails[1]
        # rounded up, as times are whole, less a margin for float noise
        return np.asarray(np.ceil(np.minimum(bound * (1 - MARGIN), LARGEST)).astype(np.int64))


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


def refuted(forms: ClosedForms, below_ns: Array) -> Mask:
    """[N] whether no plan of a configuration has a step time below this; one chunk per device."""
    if not any(layer.is_block for layer in forms.prover.layers):
        return np.zeros(len(forms.configs), dtype=bool)
    shown = [_Blocks(forms, alike).refuted(below_ns - 1) for alike in (True, False)]
    return np.asarray((shown[0] | shown[1]) & (forms.column("vpp") == 1))


class _Blocks:
    """N configurations, P stages at most, J node groups, U runs of equal layers.

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
        return passes_left(self.forms.configs, shares, self.micro_batches)

    @cached_property
    def inside(self) -> Mask:
        """[N, J] the group of A, the fastest one used; none where no other is used."""
        chain = (self.forms.work * self.forms.counts[:, None]).sum(axis=1)
        fastest = np.argmin(np.where(self.used, chain, np.inf), axis=1)
        several = self.used.sum(axis=1) > 1
        return np.asarray((np.arange(self.used.shape[1]) == fastest[:, None]) & several[:, None])

    def stages_inside(self) -> Array:
        """[N] most stages of a replica on A."""
        dp, slots = self.dp[:, None], self.forms.slots.astype(np.int64)
        if self.forms.even:
            stages = (slots * self.inside).sum(axis=1) // self.dp
        else:
            each = slots // np.maximum(self.forms.nodes, 1)
            up, down = (self.forms.nodes * part for part in (-(-each // dp), each // dp))
            others = self.pp - (down * ~self.inside).sum(axis=1)
            stages = np.minimum((up * self.inside).sum(axis=1), others)
        return np.asarray(np.clip(stages, 0, self.pp))

    def refuted(self, limits: Array) -> Mask:
        """[N] whether no plan has a step within these, by the replica with fewest stages on A."""
        sets, fast = (self.used, self.used & ~self.inside), self.stages_inside()
        work, slow_work = (self._of_block(self.forms.work, among) for among in sets)
        tail, slow_tail = (self._of_block(self.forms.tails[0], among) for among in sets)
        passed, slow = (self.forms.least(self.passed, among)[:, self.is_block] for among in sets)
        gain = ((slow - passed) / self.weight).max(axis=1)
        on_all, on_slow = (blocks @ self.forms.counts[self.is_block] for blocks in (passed, slow))
        limit = limits * (1 + SLACK) - self.forms.tails[1]
        # of what is no block the latency and tail of stage 0
        other_tails = self.forms.least(self.forms.tails[0], self.used) * self.places[0]
        passing = self.forms.least(self.passed, self.used) * ~self.is_block * self.forms.counts
        limit_first = limit - (other_tails + passing).sum(axis=1)
        on_fast, first = np.where(fast > 0, self.number, 0), np.full(len(limit), float(self.least))
        shown = np.zeros(len(limit), dtype=bool)
        for _ in range(STEPS):
            latency = np.maximum(on_slow - on_fast * gain, on_all)
            room = limit_first - latency
            on_a = self._held(limit, room, first * tail, work, tail)
            on_b = self._held(limit, room, first * tail, slow_work, slow_tail)
            capacity = on_b.sum(axis=1) + _largest(on_a - on_b, fast)
            shown |= capacity * (1 + SLACK) < self.number
            on_fast = np.minimum(_largest(np.maximum(on_a, 0), fast), on_fast)
            first = np.maximum(first, self.number - capacity + on_b[:, 0])
        return shown

    def _of_block(self, values: Numbers, among: Mask) -> Numbers:
        """[N] least of [N, U, J] over blocks and these groups."""
        each = values[:, self.is_block] / self.weight[:, :, None]
        return np.asarray(self.forms.least(each, among).min(axis=1))

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """[U] layers of a run, no blocks, that are surely on the first stage, and on the last."""
        is_block = [layer.is_block for layer in self.forms.prover.layers]
        blocks = [x for x, block in enumerate(is_block) if block]
        blocks = blocks if self.least else [1, len(is_block) - 2]
        run = np.repeat(np.arange(len(self.forms.counts)), self.forms.counts)
        parts = run[: blocks[0]], run[blocks[-1] + 1 :]
        first, last = (np.bincount(part, minlength=len(self.is_block)) for part in parts)
        return first * ~self.is_block, last * ~self.is_block

    @cached_property
    def others(self) -> Numbers:
        """[N, P] work of what is no block, as far as it is known where it is."""
        work, others = self.forms.least(self.forms.work, self.used), np.zeros(self.c.shape)
        others[:, 0] = work @ self.places[0]
        others[np.arange(len(others)), self.pp - 1] += work @ self.places[1]
        return others

    def _held(
        self, limit: Numbers, room: Numbers, behind_ns: Numbers, block_ns: Numbers, tail_ns: Numbers
    ) -> Numbers:
        """[N, P] most blocks of every stage; -NEVER if it cannot be; 0 beyond the last."""
        m, c = self.micro_batches[:, None], np.where(self.c < np.inf, self.c, 0)
        c = np.where(c > LEAST_SHARE * m, c, 0)
        each = np.stack([c * block_ns[:, None], m * block_ns[:, None] + tail_ns[:, None] + 0 * c])
        rooms = (room - behind_ns)[:, None] - c * self.others
        rooms[:, 0], each[0, :, 0] = room - c[:, 0] * self.others[:, 0], each[0, :, 0] + tail_ns
        limits = np.stack([rooms, limit[:, None] - m * self.others])
        fits = (limits / np.maximum(each, TINY)).min(axis=0)
        number = np.minimum(np.floor(fits) if self.alike else fits, self.most[:, None])
        number = np.where(number >= self.least, number, -NEVER)
        return np.where(np.isinf(self.c), 0.0, number)


def _largest(values: Numbers, number: Array) -> Numbers:
    """[N] sum of so many [N] of the largest values [N, P], none of them negative."""
    ordered = np.cumsum(np.maximum(np.sort(values, axis=1)[:, ::-1], 0), axis=1)
    padded = np.concatenate([np.zeros((len(values), 1)), ordered], axis=1)
    return np.asarray(np.take_along_axis(padded, number[:, None], axis=1)[:, 0])
