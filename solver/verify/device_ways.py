"""Ways to run a device with all its chunks of layers, over all node orders: see `chunks`."""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.costs.intervals import interval_maxima, interval_sums
from formulations.costs.memory import LayerMemory, capacity_bytes, layer_memory
from formulations.plan import Shape
from solver.verify.bounds import Prover
from solver.verify.lengths import NEVER
from solver.verify.orders import OrderGraph

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: With more ways than these for one device there is no question.
MOST_WAYS = 400_000


@dataclass(frozen=True)
class Ways:
    """M ways to run one device with v chunks; R lanes, ns.

    step: [M] of the graph. before: [M] layers on the devices before. sizes: [v, M] layers of each
    chunk. source, target: [M] states of graph and layers. times: [3 v, R, M] forward of every
    chunk, then backward, then message from the virtual stage before, or to it. tail: [M].
    """

    step: Array
    before: Array
    sizes: Array
    source: Array
    target: Array
    times: Array
    tail: Array

    def __len__(self) -> int:
        return len(self.step)

    def take(self, keep: Mask) -> "Ways":
        """Some of them."""
        return Ways(*(getattr(self, field.name)[..., keep] for field in fields(self)))


Left = list[Ways]


class DeviceWays:
    """The ways of one shape. n = L + 1, S = p v."""

    def __init__(self, prover: Prover, shape: Shape) -> None:
        self.prover, self.shape, self.instance = prover, shape, prover.instance
        self.graph = OrderGraph(prover.instance, shape)
        self.length, self.size = len(prover.layers), len(prover.layers) + 1
        self.share = prover.instance.workload.global_batch // shape.micro_batch // shape.dp

    @cached_property
    def lanes(self) -> list[int]:
        """Of lanes that are alike the first."""
        return list(dict.fromkeys(self.graph.alike))

    @cached_property
    def _places(self) -> Mask:
        """[S, L, n] whether a virtual stage may have so many layers from this one on."""
        stages, ends = self.shape.num_stages, np.arange(self.size)
        s, first, count = np.ogrid[:stages, : self.length, : self.size]
        last = first + count
        inside = (first >= s) & (last <= self.length - (stages - 1 - s))
        outer = ((s > 0) | (first == 0)) & ((s < stages - 1) | (last == self.length))
        enough = self.prover.enough_blocks[ends[:-1, None], np.minimum(last[0], self.length)]
        places: Mask = np.logical_and(inside & outer, (last <= self.length) & enough)
        return places

    @cached_property
    def _possible(self) -> Mask:
        """[S, n] whether a virtual stage may have so many layers anywhere."""
        possible: Mask = np.any(self._places, axis=1)
        return possible

    def _least(self, values: Array) -> Array:
        """[S, n] least of [n, n] over the places of so many layers, where there are any."""
        first = np.arange(self.length)[:, None]
        own = values[first, np.minimum(first + np.arange(self.size), self.length)]
        least: Array = np.where(self._places, own, NEVER).min(axis=1)
        return least

    @cached_property
    def _times(self) -> Array:
        """[2, W, J, S, n] forward, backward, by what is recomputed."""
        forward, backward, _ = self.prover.stage_times(self.shape)
        ways = self.prover.chunk_ways(self.shape).extra
        least = [np.stack([self._least(own) for own in forward])] * len(ways)
        late = [[self._least(own) for own in backward + extra] for extra in ways]
        return np.stack([least, late])

    @cached_property
    def _tails(self) -> tuple[Array, Array]:
        """[T, S, n] of the layers of one chunk; [T] once."""
        once = np.array([tail[0, 0] for tail in self.graph.tails.whole])
        return np.stack([self._least(tail - tail[0, 0]) for tail in self.graph.tails.whole]), once

    @cached_property
    def _kinds(self) -> tuple[LayerMemory, ...]:
        """[J] what layers take on the GPUs of a group."""
        return layer_memory(self.instance, self.shape)

    def _memory(self, memory: LayerMemory) -> tuple[Array, list[tuple[Array, Array]]]:
        """[S, n] bytes: what stays; by way per micro-batch held, while a block is recomputed."""
        ways = [
            (
                self._least(interval_sums(own.activation_bytes)),
                self._least(interval_maxima(own.workspace_bytes)),
            )
            for own in memory.kept
        ]
        return self._least(interval_sums(memory.static_bytes)), ways

    def _device(self, k: int) -> Array:
        """[v] virtual stages of a device."""
        return np.arange(k, self.shape.num_stages, self.shape.pp)

    def _sizes(self, k: int, limit: int) -> Array:
        """[v, N] sizes of the chunks of a device that may be busy within the limit on some group.

        Other devices have as many layers as they have chunks, at least.
        """
        used = [j for j, n in enumerate(self.shape.nodes_used) if n]
        work = self._times[:, 0].sum(axis=0)[used].min(axis=0)
        work = self.share * np.where(self._possible, work, limit + 1)
        most = self.length - self.shape.num_stages + self.shape.vpp
        sizes, busy = np.zeros((0, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
        for s in self._device(k):
            more = busy[:, None] + work[s]
            own, count = np.nonzero((more <= limit) & (sizes.sum(axis=0)[:, None] <= most))
            sizes, busy = np.concatenate([sizes[:, own], count[None]]), more[own, count]
        return sizes[:, sizes.sum(axis=0) <= most]

    def _taken(self, k: int, sizes: Array) -> Array:
        """[J, N] the first way that a device with such chunks may have room with; W: none."""
        known: dict[int, Array] = {}
        for memory in self._kinds:
            if id(memory) not in known:
                known[id(memory)] = self._bytes(k, sizes, memory)
        need = np.stack([known[id(memory)] for memory in self._kinds])
        short = need > capacity_bytes(self.instance)[:, None, None]
        taken: Array = np.logical_and.accumulate(short, axis=1).sum(axis=1)
        return taken

    def _bytes(self, k: int, sizes: Array, memory: LayerMemory) -> Array:
        """[W, N] that a device with chunks of these sizes needs at least."""
        where = self._device(k)[:, None], sizes
        static, ways = self._memory(memory)
        most = self.prover.chunk_ways(self.shape).most_held(k, self.share)
        once = static[where].sum(axis=0) + memory.fixed_bytes
        return np.stack(
            [
                once + (most @ kept[where]).max(axis=0) + largest[where].max(axis=0)
                for kept, largest in ways
            ]
        )

    def everything(self, below_ns: int) -> Left | None:
        """All ways whose devices and memory alone leave the claim open; None if too many."""
        if not self.share or self.graph.steps is None:
            return None
        found = []
        for k in range(self.shape.pp):
            ways = self._ways(k, below_ns - 1)
            if ways is None:
                return None
            found.append(ways)
        return found

    def _ways(self, k: int, limit: int) -> Ways | None:
        step, p, v = self.graph.built[k], self.shape.pp, self.shape.vpp
        sizes = self._sizes(k, limit)
        count = sizes.sum(axis=0)
        least, most = k * v * bool(k), (self.length - (p - k) * v) * bool(k)
        before = np.arange(least, most + 1)
        rest = self.length - before[:, None] - count
        joined = rest == 0 if k == p - 1 else rest >= (p - 1 - k) * v
        taken, num_ways = self._taken(k, sizes), len(self.shape.recompute)
        rows, total = [], 0
        for x, groups in enumerate(step.group):
            way = (taken[groups] % num_ways)[:, None]
            passes = self._times[:, way, groups[:, None, None], self._device(k)[:, None], sizes]
            busy = self.share * passes.sum(axis=(0, 2))
            fits = (busy <= limit).all(axis=0) & (taken[groups] < num_ways).all(axis=0)
            first, own = np.nonzero(joined & fits)
            total += len(own)
            if total > MOST_WAYS:
                return None
            rows.append((np.full(len(own), x), before[first], own))
        chosen, first, own = (np.concatenate(column) for column in zip(*rows, strict=True))
        return self._priced(k, chosen, first, sizes[:, own], taken[:, own])

    def _priced(self, k: int, x: Array, before: Array, sizes: Array, taken: Array) -> Ways:
        step, stages = self.graph.built[k], self._device(k)[:, None]
        groups = step.group[x][:, self.lanes].T
        way = taken[groups, np.arange(len(x))][None]
        passes = self._times[:, way, groups[None], stages[:, None], sizes[:, None]]
        ahead = step.send.min(axis=-1)[x][:, self.lanes].T
        around = ahead if k else step.back.min(axis=-1)[x][:, self.lanes].T
        send = np.stack([ahead, *[around] * (self.shape.vpp - 1)])
        tails, once = self._tails
        row = step.tail[x]
        after = before + sizes.sum(axis=0)
        return Ways(
            step=x,
            before=before,
            sizes=sizes,
            source=step.source[x] * self.size + before,
            target=step.target[x] * self.size + after,
            times=np.concatenate([*passes, send]),
            tail=once[row] + tails[row, stages, sizes].sum(axis=0),
        )
