"""Times of all operations of stages: constraints (1) and, with one chunk, (2) of `step_time`."""

from collections.abc import Callable, Hashable, Iterable
from functools import partial

from ortools.sat.python import cp_model

from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import Array, CostTables
from formulations.cpsat.device_ways import DeviceWays
from formulations.cpsat.parts import Parts
from formulations.cpsat.terms import (
    Linear,
    Literal,
    enforced_maximum,
    negated,
    require_any,
    total_of,
)
from formulations.fixed import device_sum
from formulations.recompute_rows import alike, stage_runs


class StageTimes:
    """`times`: [o][S][R] ns of one micro-batch, with what is recomputed.

    ways: of devices with several chunks.
    """

    def __init__(
        self, model: cp_model.CpModel, tables: CostTables, parts: Parts, ways: DeviceWays | None
    ) -> None:
        self.model, self.tables = model, tables
        self.split, self.order, self.shares = parts.split, parts.order, parts.shares
        self._costs = StageCosts(tables)
        self._sums: dict[tuple[str, range, int], Linear] = {}
        self.times = [
            self._stage_times(f"time[{o}]", table) for o, table in enumerate(tables.passes)
        ]
        self._recompute(self._again if ways is None else partial(self._again_of_chunk, ways))

    def _sum(self, name: str, table: Array, stages: range, group: int) -> Linear:
        """Sum over stages of one column of a table, built once."""
        key = (name, stages, group)
        if key not in self._sums:
            self._sums[key] = device_sum(self.split, stages, table[:, group])
        return self._sums[key]

    def slowest(
        self, name: str, table: Array, stages: range, groups: Iterable[tuple[int, Literal]]
    ) -> Linear:
        """(1) Time of stages on whichever of the groups hold them."""
        options = list(groups)
        terms: list[tuple[tuple[Literal, ...], Linear]] = [
            ((literal,), self._sum(name, table, stages, j)) for j, literal in options
        ]
        if len(options) > 1:
            used = sorted({j for j, _ in options})
            least = device_sum(self.split, stages, table[:, used].min(axis=1))
            terms.append(((1,), least))
        upper = int(table.max(axis=1).sum())
        return enforced_maximum(self.model, terms, upper, f"{name}[{stages[0]}]")

    def _stage_times(self, name: str, table: Array) -> list[list[Linear]]:
        """(1) [S][R] times of one kind of operation; equal columns share their expressions."""
        shape = self.tables.shape
        rows = []
        for k in range(shape.num_stages):
            kept: dict[Hashable, Linear] = {}
            for r in range(self.tables.shape.dp):
                column, slot = self.order.column(r), k % shape.pp * shape.dp + r
                if column not in kept:
                    groups = self.order.types(slot)
                    kept[column] = self.slowest(name, table, range(k, k + 1), groups)
            rows.append([kept[self.order.column(r)] for r in range(self.tables.shape.dp)])
        return rows

    def _recompute(self, again: Callable[[int, int], Linear]) -> None:
        """(1), (2) What stages recompute and, alone on a device, have no room for."""
        for k, backward in enumerate(self.times[1]):
            for replicas, _ in alike(self.order, self.shares, self.tables.shape.dp):
                time = again(k, replicas[0])
                for r in replicas:
                    backward[r] = total_of(backward[r], time)

    def _again_of_chunk(self, ways: DeviceWays, stage: int, replica: int) -> Linear:
        """(1) Time of a chunk of a replica for what its device recomputes."""
        shape, most = self.tables.shape, 0
        known = ways.of(stage % shape.pp, replica)
        terms: list[tuple[tuple[Literal, ...], Linear]] = []
        for j, owner in self.order.types(stage % shape.pp * shape.dp + replica):
            for taken, extra in zip(known, self.tables.recompute_ns, strict=True):
                if extra[:, j].any():
                    most = max(most, int(extra[:, j].sum()))
                    terms.append(((owner, taken), self.split.stage_sum(stage, extra[:, j])))
        return enforced_maximum(self.model, terms, most, f"again[{stage}][{replica}]")

    def _again(self, stage: int, replica: int) -> Linear:
        """(1), (2) Time of a stage of a replica for what it recomputes."""
        slot, again = stage * self.tables.shape.dp + replica, []
        for j, owner in self.order.types(slot):
            for m, runs in stage_runs(self._costs, stage, j, self.shares.choices(replica)):
                reached = self.shares.at_least(replica, m)
                for run in runs:
                    begun = self.split.begun(stage, run.start)
                    follows = self.split.begun(stage + 1, run.end - 1)
                    holds = owner, reached, begun, negated(follows)
                    if run.extra_ns is None:
                        require_any(self.model, (), *holds)
                    else:
                        again.append((holds, run.extra_ns))
        most = max((time for _, time in again), default=0)
        return enforced_maximum(self.model, again, most, f"again[{stage}][{replica}]")
