"""Ways to run a device with all its chunks of layers, over all node orders: see `chunks`."""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.plan import Shape
from solver.verify.bounds import Prover
from solver.verify.chunk_sizes import ChunkSizes
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
        self.graph, self.costs = OrderGraph(prover.instance, shape), ChunkSizes(prover, shape)
        self.length, self.size = len(prover.layers), len(prover.layers) + 1
        self.share = prover.instance.workload.global_batch // shape.micro_batch // shape.dp

    @cached_property
    def lanes(self) -> list[int]:
        """Of lanes that are alike the first."""
        return list(dict.fromkeys(self.graph.alike))

    @cached_property
    def _tails(self) -> tuple[Array, Array]:
        """[T, S, n] of the layers of one chunk; [T] once."""
        rows = self.graph.tails.whole
        each = np.stack([self.costs.least(tail - tail[0, 0]) for tail in rows])
        return each, np.array([tail[0, 0] for tail in rows])

    def _device(self, k: int) -> Array:
        """[v] virtual stages of a device."""
        return np.arange(k, self.shape.num_stages, self.shape.pp)

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
        sizes = self.costs.within(k, limit)
        count = sizes.sum(axis=0)
        least, most = k * v * bool(k), (self.length - (p - k) * v) * bool(k)
        before = np.arange(least, most + 1)
        rest = self.length - before[:, None] - count
        joined = rest == 0 if k == p - 1 else rest >= (p - 1 - k) * v
        taken, num_ways = self.costs.taken(k, sizes), len(self.shape.recompute)
        rows, total = [], 0
        for x, groups in enumerate(step.group):
            way = (taken[groups] % num_ways)[:, None]
            passes = self.costs.times[
                :, way, groups[:, None, None], self._device(k)[:, None], sizes
            ]
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
        passes = self.costs.times[:, way, groups[None], stages[:, None], sizes[:, None]]
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
