"""Times of all operations of stages, and memory: constraints (1), (2) and (25) of `step_time`.

What a stage recomputes takes time that never falls when layers are added on either side, see
`formulations.costs.stage_costs`. So it is at least e exactly if the stage holds one of the least
runs [a, b) that take e or more: those that take less without their first and without their last
layer. A stage holds [a, b) iff it starts at a or before, and the next one at b or later.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from formulations.costs.memory import LayerMemory
from formulations.costs.stage_costs import NEVER, StageCosts
from formulations.costs.tables import Array
from formulations.models.layer_to_stage import Split
from formulations.models.microbatches import Shares
from formulations.models.model import Literal, Model, Row, Term, negated, total_of, weighted
from formulations.models.node_order import Order
from formulations.plan import Configuration
from formulations.schedules.registry import Moments, held


class Run(NamedTuple):
    """A stage with layers [start, end) recomputes for so long at least; None: it has no room."""

    start: int
    end: int
    extra_ns: int | None


def least_runs(extra_ns: Array) -> list[Run]:
    """The rows of one [n, n] matrix of times; NEVER where there is no room."""
    inner = np.zeros_like(extra_ns)
    inner[:-1] = extra_ns[1:]
    inner[:, 1:] = np.maximum(inner[:, 1:], extra_ns[:, :-1])
    rows = np.argwhere(np.triu(extra_ns > np.triu(inner), k=1)).tolist()
    times = [int(extra_ns[start, end]) for start, end in rows]
    pairs = zip(rows, times, strict=True)
    return [Run(a, b, None if time >= NEVER else time) for (a, b), time in pairs]


def _first_moments(
    config: Configuration, device: int, shares: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The least share with which a device comes to each of its fullest moments.

    shares: ascending. With more micro-batches a device comes to all moments that it comes to with
    fewer, or to fuller ones.
    """
    seen = set[tuple[int, ...]]()
    for m in shares:
        for moment in held(config.schedule, config.pp, device, m, *config.chunking):
            if moment not in seen:
                seen.add(moment)
                yield m, moment


class StageTimes:
    """`times`: [o][S][R] ns of one micro-batch, with what is recomputed.

    way[d][r][w], of several chunks per device: device d of replica r recomputes all its blocks in
    way w of the configuration.
    """

    def __init__(
        self, model: Model, costs: StageCosts, split: Split, order: Order, shares: Shares
    ) -> None:
        self.model, self.tables, self._costs = model, costs.tables, costs
        self.split, self.order, self.shares = split, order, shares
        config, alike = self.tables.config, dict[Hashable, list[int]]()
        # Replicas that recompute alike on every stage: of equal groups and transfers, with the
        # same given share; a free share is each one's own.
        for r in range(config.dp):
            choices = tuple(shares.choices[r])
            alike.setdefault((order.column(r), choices if len(choices) == 1 else r), []).append(r)
        self._alike = list(alike.values())
        self.times = [
            self._stage_times(f"time_{o}", table) for o, table in enumerate(self.tables.passes)
        ]
        if config.vpp > 1:
            self._ways = dict[tuple[int, int], list[Literal]]()
            for d, replicas in product(range(config.pp), self._alike):
                ways = self._new_ways(d, replicas[0])
                self._ways |= {(d, r): ways for r in replicas}
            for d in range(config.pp):
                self._fit_chunks(d)
        for k, backward in enumerate(self.times[1]):
            for replicas in self._alike:
                again = self._again_of_chunk if config.vpp > 1 else self._again
                time = again(k, replicas[0])
                for r in replicas:
                    backward[r] = total_of(backward[r], time)

    def _slot(self, stage: int, replica: int) -> int:
        return stage % self.tables.config.pp * self.tables.config.dp + replica

    def _on_owner(self, table: Array, stages: range, replica: int) -> tuple[list[Row], int]:
        """(1) Rows of stages on the owner of their slot, and an upper bound of them."""
        owners = [(literal, j) for j, literal in self.order.types(self._slot(stages[0], replica))]
        costs = self.split.of_layers(stages, {j: table[:, j] for _, j in owners})
        return self.model.choose(costs, owners), costs.upper

    def _stage_times(self, name: str, table: Array) -> list[list[Term]]:
        """(1) [S][R] times of one kind of operation; equal columns share their variables."""
        times = []
        for k in range(self.tables.config.num_stages):
            columns: dict[Hashable, Term] = {}
            for r in range(self.tables.config.dp):
                column = self.order.column(r)
                if column not in columns:
                    rows, upper = self._on_owner(table, range(k, k + 1), r)
                    columns[column] = self.model.maximum(1, rows, upper, f"{name}_{k}_{r}")
            times.append([columns[self.order.column(r)] for r in range(self.tables.config.dp)])
        return times

    def optimizer(self, device: int) -> Term:
        """(1) Optimizer of a device on the slowest owner of its slots."""
        config = self.tables.config
        table, stages = self.tables.optimizer_ns, config.stages_of(device)
        different: dict[Hashable, tuple[list[Row], int]] = {}
        for r in range(config.dp):
            owners = self.order.types(self._slot(device, r))
            key = owners[0][0] if len(owners) == 1 else -1 - r
            if key not in different:
                different[key] = self._on_owner(table, stages, r)
        rows = [row for owner_rows, _ in different.values() for row in owner_rows]
        upper = max(upper for _, upper in different.values())
        return self.model.maximum(1, rows, upper, f"optimizer_{device}")

    def _again(self, stage: int, replica: int) -> Term:
        """(1), (2) Time of a stage, alone on its device, for what it recomputes."""
        rows, longest = list[Row](), 0
        for j, owner in self.order.types(self._slot(stage, replica)):
            seen: set[Moments] = set()
            # With more micro-batches nothing gets less.
            for m in self.shares.choices[replica]:
                moments = self._costs.moments(stage, m)
                if moments in seen:
                    continue
                seen.add(moments)
                reached = self.shares.at_least(replica, m)
                for start, end, extra_ns in least_runs(self._costs.extra(j, stage, m)):
                    follows = self.split.begun(stage + 1, end - 1)
                    begun = self.split.begun(stage, start)
                    holds = (owner, reached, begun, negated(follows))
                    if extra_ns is None:
                        self.model.some_of(2, (), *holds)
                    else:
                        rows.append((holds, extra_ns))
                        longest = max(longest, extra_ns)
        return self.model.maximum(1, rows, longest, f"again_{stage}_{replica}")

    def _new_ways(self, device: int, replica: int) -> list[Literal]:
        """(25) [W] of which exactly one holds."""
        num_ways = len(self.tables.config.recompute)
        if num_ways == 1:
            return [1]
        ways = [self.model.literal(f"way_{device}_{replica}_{w}") for w in range(num_ways)]
        self.model.exactly_one(25, ways)
        return [*ways]

    def _again_of_chunk(self, stage: int, replica: int) -> Term:
        """(1) Time of a chunk of a replica for what its device recomputes."""
        ways = dict(enumerate(self._ways[stage % self.tables.config.pp, replica]))
        if len(ways) == 1:
            return 0
        owners = [(owner, j) for j, owner in self.order.types(self._slot(stage, replica))]
        times = {(j, w): self.tables.recompute_ns[w][:, j] for _, j in owners for w in ways}
        costs = self.split.of_layers([stage], times)
        return self.model.largest(1, costs, [((), owners)], f"again_{stage}_{replica}", ways)

    def _fit_chunks(self, device: int) -> None:
        """(2) Every slot of a device with several chunks, for every moment and way there may be."""
        config, memory = self.tables.config, self.tables.memory
        workspaces: dict[tuple[int, int], Term] = {}
        needs: dict[tuple[tuple[int, ...], int, int], Term] = {}
        for replicas in self._alike:
            r = replicas[0]
            for m, moment in _first_moments(config, device, self.shares.choices[r]):
                reached = self.shares.at_least(r, m)
                for j, owner in self.order.types(self._slot(device, r)):
                    for way, taken in enumerate(self._ways[device, r]):
                        place, key = (id(memory[j]), way), (moment, id(memory[j]), way)
                        if place not in workspaces:
                            name = f"workspace_{device}_{len(workspaces)}"
                            sizes = memory[j].kept[way].workspace_bytes
                            workspaces[place] = self._largest(name, config.stages_of(device), sizes)
                        if key not in needs:
                            layers = self._chunk_bytes(memory[j], moment, way, device)
                            needs[key] = total_of(memory[j].fixed_bytes, workspaces[place], layers)
                        room = int(self.tables.capacity_bytes[j])
                        self.model.at_most(2, needs[key], room, owner, taken, reached)

    def _chunk_bytes(
        self, memory: LayerMemory, moment: Sequence[int], way: int, device: int
    ) -> Term:
        """Bytes of all layers of a device at a moment, static ones too."""
        waiting = memory.static_bytes + moment[-1] * memory.put_off_bytes
        stages = self.tables.config.stages_of(device)
        pairs, activation = zip(stages, moment[:-1], strict=True), memory.kept[way].activation_bytes
        sums = (self.split.stage_sum(k, waiting + count * activation) for k, count in pairs)
        return total_of(*sums)

    def _largest(self, name: str, stages: Sequence[int], sizes: Array) -> Term:
        """At least the size of every layer: of every run of equal ones that a stage meets."""
        if not sizes.any():
            return 0
        largest = self.model.time(name, int(sizes.max()))
        starts = np.flatnonzero(np.diff(sizes, prepend=-1)).tolist()
        for k, (start, end) in product(stages, pairwise([*starts, len(sizes)])):
            meets = [self.split.begun(k, end - 1), self.split.begun(k + 1, start)]
            size = int(sizes[start])
            self.model.at_most(2, weighted([size, -size], meets), largest)
        return largest
