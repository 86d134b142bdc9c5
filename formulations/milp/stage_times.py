"""Times of all operations of stages: constraints (1) and, with one chunk, (2) of `step_time`."""

from collections.abc import Callable, Hashable
from functools import partial

import pulp

from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import Array, CostTables
from formulations.milp.choices import chosen, chosen_pair, of_layers
from formulations.milp.device_ways import DeviceWays
from formulations.milp.parts import Parts
from formulations.milp.terms import (
    Linear,
    duration,
    maximum,
    require_at_most,
    total_of,
    weighted,
)
from formulations.recompute_rows import alike, stage_runs


class StageTimes:
    """`times`: [o][S][R] ns of one micro-batch, with what is recomputed.

    ways: of devices with several chunks.
    """

    def __init__(
        self, model: pulp.LpProblem, tables: CostTables, parts: Parts, ways: DeviceWays | None
    ) -> None:
        self.model, self.tables = model, tables
        self.split, self.order, self.shares = parts.split, parts.order, parts.shares
        self._costs = StageCosts(tables)
        self.times = [
            self._stage_times(f"time_{o}", table) for o, table in enumerate(tables.passes)
        ]
        self._recompute(self._again if ways is None else partial(self._again_of_chunk, ways))

    def _recompute(self, again: Callable[[int, int], Linear]) -> None:
        """(1), (2) What stages recompute and, alone on a device, have no room for."""
        for k, backward in enumerate(self.times[1]):
            for replicas, _ in alike(self.order, self.shares, self.tables.shape.dp):
                time = again(k, replicas[0])
                for r in replicas:
                    backward[r] = total_of(backward[r], time)

    def _again_of_chunk(self, ways: DeviceWays, stage: int, replica: int) -> Linear:
        """(1) Time of a chunk of a replica for what its device recomputes."""
        tables, shape = self.tables, self.tables.shape
        known = ways.of(stage % shape.pp, replica)
        if len(known) == 1:
            return 0
        owners = dict(self.order.types(stage % shape.pp * shape.dp + replica))
        taken = dict(enumerate(known))
        times = {(j, w): tables.recompute_ns[w][:, j] for j in owners for w in taken}
        costs = of_layers(self.split, [stage], times)
        terms = chosen_pair(costs, owners, taken) if costs.largest else []
        return maximum(self.model, 1, terms, f"again_{stage}_{replica}", costs.largest)

    def _again(self, stage: int, replica: int) -> Linear:
        """(1), (2) Time of a stage of a replica for what it recomputes."""
        terms: list[tuple[Linear, int]] = []
        for j, owner in self.order.types(stage * self.tables.shape.dp + replica):
            for m, runs in stage_runs(self._costs, stage, j, self.shares.choices(replica)):
                reached = self.shares.at_least(replica, m)
                for start, end, extra_ns in runs:
                    ends = self.split.begun(stage, start), self.split.begun(stage + 1, end - 1)
                    holds = weighted([1, -1, 1, 1, -2], [*ends, owner, reached, 1])
                    if extra_ns is None:
                        require_at_most(self.model, 2, holds, 0)
                    elif not isinstance(holds, int) or holds > 0:
                        terms.append((holds, extra_ns))
        most = max((time for _, time in terms), default=0)
        again = duration(self.model, f"again_{stage}_{replica}", most) if most else 0
        for holds, time in terms:
            require_at_most(self.model, 1, weighted([time], [holds]), again)
        return again

    def _chosen(self, table: Array, stages: range, replica: int) -> tuple[list[Linear], int]:
        """(1) Terms of which the largest is the time of a device's stages on the owner of its slot.

        And a number that none of them exceeds.
        """
        shape = self.tables.shape
        owners = dict(self.order.types(stages[0] % shape.pp * shape.dp + replica))
        costs = of_layers(self.split, stages, {j: table[:, j] for j in owners})
        return chosen(costs, owners), costs.largest

    def _stage_times(self, name: str, table: Array) -> list[list[Linear]]:
        """(1) [S][R] times of one kind of operation; equal columns share their variables."""
        rows = []
        for k in range(self.tables.shape.num_stages):
            kept: dict[Hashable, Linear] = {}
            for r in range(self.tables.shape.dp):
                column = self.order.column(r)
                if column not in kept:
                    terms, upper = self._chosen(table, range(k, k + 1), r)
                    kept[column] = maximum(self.model, 1, terms, f"{name}_{k}_{r}", upper)
            rows.append([kept[self.order.column(r)] for r in range(self.tables.shape.dp)])
        return rows

    def optimizer(self, device: int) -> Linear:
        """(1) Optimizer of a device on the slowest owner of its slots."""
        table, dp = self.tables.optimizer_ns, self.tables.shape.dp
        kept: dict[Hashable, tuple[list[Linear], int]] = {}
        for r in range(self.tables.shape.dp):
            owners = self.order.types(device * dp + r)
            certain = len(owners) == 1
            stages = self.tables.shape.stages_of(device)
            kept[owners[0][0] if certain else -1 - r] = self._chosen(table, stages, r)
        terms = [term for own, _ in kept.values() for term in own]
        upper = max(upper for _, upper in kept.values())
        return maximum(self.model, 1, terms, f"optimizer_{device}", upper)
