"""One node order on trial: simulated step times of many splits at once, and their paths.

Critical paths met so far tell which other plans cannot be faster, without simulation.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from formulations.costs.intervals import sums_before
from formulations.costs.placement import PlacementCosts
from formulations.costs.tables import Array
from formulations.schedules.graph import schedule_graph
from solver.graph.problem import Numbers, distinct
from solver.heuristics.balance import Order, Shares, Split, SplitSpace
from solver.simulate import Times, simulate, trace

#: End times held at once by a batch simulation.
BATCH_ENTRIES = 1 << 22


#: Micro-batches, and a row for each critical path of pipelines with so many: device that it ends
#: on, visits [2S or 3S] by kind of operation, transfers [S - 1] per boundary, both ways.
Paths = tuple[int, Array]


class Trial(ABC):
    """Plans of one configuration whose step times splits [N, S + 1] decide; p devices."""

    def __init__(self, space: SplitSpace) -> None:
        self.space, self.tables, self.config = space, space.tables, space.tables.config

    @abstractmethod
    def runs(self, splits: Array) -> Iterator[tuple[int, Times]]:
        """Micro-batches, and times [S, C * N] of the C kinds of replicas with them, by kind."""

    @abstractmethod
    def tail_ns(self, splits: Array) -> Array:
        """[p, N] from the last operation of a device to the end of the step, at least.

        The step ends when the last of them does.
        """

    def simulated(self, splits: Array, paths: bool) -> tuple[Array, list[Paths]]:
        """Step time of every split [N], and if asked for one critical path each."""
        tail = self.tail_ns(splits)
        count = len(splits)
        step, critical = np.zeros(count, dtype=np.int64), []
        for micro_batches, times in self.runs(splits):
            config = self.config
            graph = schedule_graph(config.schedule, config.pp, micro_batches, *config.chunking)
            end = simulate(graph, times)
            ends = end[graph.last].reshape(len(tail), -1, count) + tail[:, None]
            np.maximum(step, ends.max(axis=(0, 1)), out=step)
            if not paths:
                continue
            flat = ends.reshape(-1, count).argmax(axis=0)
            device, lane = np.divmod(flat, ends.shape[1])
            columns = lane * count + np.arange(count)
            path = trace(graph, times, end, columns, graph.last[device])
            stages = graph.num_stages
            sends = path.transfers[: stages - 1] + path.transfers[stages - 1 : -1]
            if times.blocking:
                sends = path.weights[: stages - 1] + path.weights[stages + 1 : 2 * stages]
            critical.append((micro_batches, np.vstack([device, path.weights, sends]).T))
        return step, critical


class OrderTrial(Trial):
    """Judges splits [N, S + 1] of one node order with these shares, or even ones."""

    def __init__(self, space: SplitSpace, order: Order, shares: Shares | None = None) -> None:
        super().__init__(space)
        self.order, self.balance = order, space.balance(order, shares)

    @cached_property
    def placement(self) -> PlacementCosts:
        """Costs of the order."""
        return self.space.placer.costs(self.order)

    @cached_property
    def _rings(self) -> list[Array]:
        """[S, n] gradient sync of the layers before each boundary, and parameter gather."""
        phases = self.placement.sync_ns, self.placement.gather_ns
        return [np.tile(sums_before(layers_ns), (self.config.vpp, 1)) for layers_ns in phases]

    def with_shares(self, shares: Shares) -> "OrderTrial":
        """The same order with other shares."""
        trial = OrderTrial(self.space, self.order, shares)
        trial.placement = self.placement
        return trial

    def stage_times(self, split: Split) -> Array:
        """[p, R] forward + backward of one micro-batch; of one chunk per device."""
        work, groups, bounds = self.space.work, self.balance.groups, np.array(split)[:, None]
        times: Array = work[bounds[1:], groups] - work[bounds[:-1], groups]
        return times

    @cached_property
    def lanes(self) -> list[tuple[int, Array, Array]]:
        """Micro-batches, and C kinds of replicas with so many.

        Groups [C, S], and messages [C, K, S - 1] in ns.
        """
        boundaries = np.arange(self.config.num_stages - 1) % self.config.pp
        groups, shares = self.balance.groups.T, np.array(self.balance.shares)
        send = self.placement.send_ns[:, boundaries].transpose(2, 0, 1)  # [dp, K, S - 1]
        lanes = []
        for m in distinct(shares).tolist():
            replicas = np.flatnonzero(shares == m).tolist()
            kinds = {groups[r].tobytes() + send[r].tobytes(): r for r in replicas}
            lanes.append((m, groups[[*kinds.values()]], send[[*kinds.values()]]))
        return lanes

    def runs(self, splits: Array) -> Iterator[tuple[int, Times]]:
        """Of every lane."""
        kinds = self.tables.message_kind[splits[:, 1:-1]]
        boundaries = np.arange(kinds.shape[1])
        for micro_batches, lanes, send_ns in self.lanes:
            groups = lanes.T[:, :, None]
            shape = groups.shape[1] * len(splits), len(boundaries)
            send = send_ns[:, kinds, boundaries].reshape(shape).T
            yield micro_batches, self.space.times(micro_batches, groups, splits, send)

    @property
    def after(self) -> Array:
        """[S, n] what the layers before each boundary add to the tail of every stage."""
        groups = self.balance.groups
        optimizer = np.array([self.space.optimizer[:, sorted(set(g))].max(axis=1) for g in groups])
        sums: Array = sum(self._rings, optimizer)
        return sums

    def tail_ns(self, splits: Array) -> Array:
        """[p, N] gradient sync, then optimizer and parameter gather, of this order."""
        start, end = splits[:, :-1].T, splits[:, 1:].T
        stages, pp = np.arange(len(start))[:, None], self.config.pp

        def of_devices(layers_ns: Array) -> Array:
            """[p, ..] of [S, ..]: over the chunks of every device."""
            sums: Array = layers_ns.reshape(-1, pp, *layers_ns.shape[1:]).sum(axis=0)
            return sums

        sync, gather = (
            of_devices(before[stages, end] - before[stages, start]) for before in self._rings
        )
        optimizer = of_devices(self.space.optimizer[end] - self.space.optimizer[start])
        groups = self.balance.groups[:pp]  # those of a device are the same on all its chunks
        slowest = [optimizer[k][:, sorted(set(groups[k]))].max(axis=1) for k in range(pp)]
        finish = np.array(slowest) + gather + self.placement.gather_latency_ns[:, None]
        if self.tables.tied:
            finish[[0, -1]] = finish[[0, -1]].max(axis=0) + self.placement.embedding_ns
        return sync + self.placement.sync_latency_ns[:, None] + finish

    def judge(self, splits: Array, paths: bool = False) -> tuple[Array, list[Paths]]:
        """Simulated step time of every split [N], and if asked for one critical path each."""
        operations = max(2 * m * len(groups) for m, groups, _ in self.lanes)
        chunk = max(1, BATCH_ENTRIES // (operations * (splits.shape[1] - 1)))
        parts = [self.simulated(splits[i : i + chunk], paths) for i in range(0, len(splits), chunk)]
        return np.concatenate([part[0] for part in parts]), [p for part in parts for p in part[1]]


#: Paths kept per number of micro-batches; the latest replace the oldest.
MOST_PATHS = 256


class PathPool:
    """Paths of one (schedule, number of devices, chunking), by micro-batches.

    The operation graph depends on neither split nor order, so every path of it bounds every plan
    with as many micro-batches on some replica.
    """

    def __init__(self) -> None:
        self._known: dict[int, Array] = {}  #: see `Paths`

    def learn(self, critical: list[Paths]) -> None:
        """Adds the paths."""
        for micro_batches, rows in critical:
            if (before := self._known.get(micro_batches)) is not None:
                rows = np.concatenate([before, rows])
            distinct_rows = np.sort(np.unique(rows, axis=0, return_index=True)[1])
            self._known[micro_batches] = rows[distinct_rows][-MOST_PATHS:]

    def bound_ns(self, trial: Trial, splits: Array) -> Numbers:
        """[N] step time of every split at least; exact in floating point below 2^53 ns."""
        tail = trial.tail_ns(splits).T.astype(np.float64)
        bound: Numbers = np.max(tail, axis=1)
        for micro_batches, times in trial.runs(splits):
            paths = self._known.get(micro_batches)
            if paths is None:
                continue
            weight = [] if times.weight is None else [times.weight]
            parts = [times.forward, times.backward, *weight, times.send]
            terms = np.concatenate(parts).astype(np.float64)
            device, counts = paths[:, 0], paths[:, 1:]
            value = (terms.T @ counts.T).reshape(-1, len(splits), len(paths))
            np.maximum(bound, (value.max(axis=0) + tail[:, device]).max(axis=1), out=bound)
        return bound
