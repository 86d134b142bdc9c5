"""Complete plans of a shape, simulated lane by lane."""

from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from formulations.plan import Plan, Shape
from formulations.schedules import SCHEDULES, ScheduleGraph, schedule_graph
from solver.simulate import Times, simulate
from solver.verify.bounds import Prover
from solver.verify.families import NEVER
from solver.verify.orders import OrderGraph

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: End times held at once.
MOST_TIMES = 1 << 25


@dataclass(frozen=True)
class Outcome:
    """The claim holds, whether or not plans had to be tried; or a plan, in whole ns, refutes it."""

    tried: bool
    plan: Plan | None = None
    step_time_ns: int | None = None


@dataclass(frozen=True)
class Plans:
    """N orders with splits: steps of the graph [p, N], boundaries of virtual stages [S + 1, N]."""

    steps: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.ends[0])

    def take(self, chosen: Array | slice) -> "Plans":
        """Some of them."""
        return Plans(self.steps[:, chosen], self.ends[:, chosen])


class PlanTimes:
    """Simulated step times of plans of one shape."""

    def __init__(self, prover: Prover, shape: Shape, graph: OrderGraph) -> None:
        self.prover, self.shape, self.order = prover, shape, graph

    @property
    def _room_varies(self) -> bool:
        """Whether what is simulated may lack room: else bounds have left that out, see `Stages`."""
        even = self.prover.instance.search.micro_batches == "even"
        return not (even or SCHEDULES[self.shape.schedule].prefixes)

    @cached_property
    def _tails(self) -> tuple[Array, Array]:
        """[T, n, n] tails of the graph, and of these the sync."""
        return np.stack(self.order.epilogues.all_ns), np.stack(self.order.epilogues.syncs)

    def of(self, plans: Plans, r: int, micro_batches: int) -> Array:
        """[N] step time if lane r, with so many micro-batches, were alone; a lower bound."""
        shape = self.shape
        graph = schedule_graph(shape.schedule, shape.pp, micro_batches, shape.vpp)
        size = max(1, MOST_TIMES // graph.num_operations)
        parts = [
            self._simulated(graph, plans.take(slice(i, i + size)), r)
            for i in range(0, len(plans), size)
        ]
        return np.concatenate(parts)

    def _simulated(self, graph: ScheduleGraph, plans: Plans, r: int) -> Array:
        times = self._times(graph.micro_batches, plans, r)
        end = simulate(graph, times)
        steps = zip(self.order.built, plans.steps, strict=True)
        rows = np.stack([step.tail[own] for step, own in steps])
        tail, sync = (self._after(table, rows, plans.ends) for table in self._tails)
        latest = ended(self.order, end[graph.last], rows, tail, sync)
        if not self._room_varies:
            return latest
        return np.where(self._have_room(graph.micro_batches, plans, r), latest, NEVER)

    def _groups(self, plans: Plans, r: int) -> Array:
        """[S, N] node group of every virtual stage."""
        steps = zip(self.order.built, plans.steps, strict=True)
        return np.tile([step.group[own, r] for step, own in steps], (self.shape.vpp, 1))

    def _have_room(self, micro_batches: int, plans: Plans, r: int) -> Mask:
        """[N] whether all stages fit the memory."""
        places = zip(self._groups(plans, r), plans.ends[:-1], plans.ends[1:], strict=True)
        extra = [
            self.prover.extra(self.shape, s, micro_batches)[own] for s, own in enumerate(places)
        ]
        fits: Mask = np.all(np.array(extra) < NEVER, axis=0)
        return fits

    def _times(self, micro_batches: int, plans: Plans, r: int) -> Times:
        shape, prover = self.shape, self.prover
        places = self._groups(plans, r), plans.ends[:-1], plans.ends[1:]
        forward, _, weight = prover.stage_times(shape)
        return Times(
            forward=forward[places],
            backward=self._backward(micro_batches, *places),
            weight=weight[places] if SCHEDULES[shape.schedule].splits_backward else None,
            send=self._sends(plans, r),
            blocking=prover.instance.search.blocking_sends,
        )

    def _backward(self, micro_batches: int, groups: Array, first: Array, last: Array) -> Array:
        """[S, N] with what is recomputed; of devices with several chunks in all of them."""
        shape, prover = self.shape, self.prover
        if shape.vpp == 1:
            places = zip(groups, first, last, strict=True)
            rows = [
                prover.backward_ns(shape, s, micro_batches)[own] for s, own in enumerate(places)
            ]
            return np.stack(rows)
        least: Array = prover.stage_times(shape)[1][groups, first, last]
        chunks, ends = prover.stage_costs(shape).chunks, np.concatenate([first, last[-1:]])
        orders, which = np.unique(groups[: shape.pp], axis=1, return_inverse=True)
        for i, order in enumerate(orders.T):
            plans = np.flatnonzero(which.ravel() == i)
            extra = chunks.extra(order[:, None], micro_batches, ends[:, plans].T)
            least[:, plans] += extra[:, 0]
        return least

    def _sends(self, plans: Plans, r: int) -> Array:
        """[S - 1, N] messages from a virtual stage to the next."""
        steps = list(zip(self.order.built, plans.steps, strict=True))
        sends = [step.send[own, r] for step, own in steps]
        around = [steps[0][0].back[plans.steps[0], r], *sends[1:]]
        into = np.stack(list(chain(sends, around * (self.shape.vpp - 1))))[1:]
        kinds = self.order.tables.message_kind[plans.ends[1:-1]]
        own: Array = np.take_along_axis(into, kinds[..., None], axis=2)[..., 0]
        return own

    def _after(self, table: Array, rows: Array, ends: Array) -> Array:
        """[p, N] of the chunks of every device, what comes once counted once."""
        own = np.tile(rows, (self.shape.vpp, 1))
        once = table[own, 0, 0]
        each = table[own, ends[:-1], ends[1:]] - once
        whole: Array = once[: len(rows)] + each.reshape(-1, *rows.shape).sum(axis=0)
        return whole


def ended(graph: OrderGraph, ready: Array, rows: Array, tail: Array, sync: Array) -> Array:
    """[N] end of the step after last backwards, tails and of these the sync [p, N].

    rows: [p, N] of the graph's tails. The outer stages wait for each other to reduce tied
    embeddings, each as fast as its nodes.
    """
    whole: Array = (ready + tail).max(axis=0)
    if not graph.tables.tied:
        return whole
    embedding = np.array(graph.epilogues.embeddings)[rows]
    synced = (ready + sync)[[0, -1]].max(axis=0) + embedding[[0, -1]].max(axis=0)
    after = (tail - sync - embedding)[[0, -1]].max(axis=0)
    latest: Array = np.maximum(whole, synced + after)
    return latest
