"""The configs that one model holds, and what it learns of them: critical paths of simulated plans.

The paths are cuts that hold for every plan of the configuration.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from formulations.costs.placement import PlacementCosts
from formulations.costs.plan_costs import split_costs
from formulations.costs.tables import Array, CostTables
from formulations.decisions import ALL_FREE, Decisions, Given, PathCut, even_shares, share_range
from formulations.instance.search import Chunking, ScheduleName
from formulations.models.degrees import ManyConfigs
from formulations.models.model import Model
from formulations.models.step_time import OneConfig
from formulations.plan import Configuration
from formulations.schedules.graph import ScheduleGraph, schedule_graph
from formulations.schedules.registry import SCHEDULES
from solver.graph.placements import replica_classes
from solver.graph.problem import INFINITY
from solver.heuristics.balance import SplitSpace
from solver.simulate import Times, simulate, tail_ns, trace

#: End times held at once when the neighbours of a split are simulated.
BATCH_ENTRIES = 1 << 22


@dataclass
class CutPool:
    """Cuts by (schedule, number of devices, chunking): they serve every config with these three."""

    _cuts: dict[tuple[ScheduleName, int, Chunking], set[PathCut]] = field(default_factory=dict)

    def of(self, config: Configuration) -> set[PathCut]:
        """The cuts that hold for a configuration; add to it what is found."""
        return self._cuts.setdefault((config.schedule, config.pp, config.chunking), set())


@dataclass(frozen=True)
class Harvest:
    """A simulated plan: its step time, and cuts of it and of its neighbours."""

    step_time_ns: int
    cuts: tuple[PathCut, ...]


def _paths(graph: ScheduleGraph, times: Times, end: Array, devices: Array) -> list[PathCut]:
    """Longest path to the last operation of `devices` [N], one per pipeline."""
    stages = graph.num_stages
    counts = trace(graph, times, end, np.arange(len(devices)), graph.last[devices])
    sends = counts.transfers[: stages - 1] + counts.transfers[stages - 1 : -1]
    operations = counts.weights.reshape(len(graph.index), stages, len(devices))
    return [
        PathCut(
            micro_batches=graph.micro_batches,
            device=int(device),
            operations=tuple(map(tuple, operations[:, :, n].tolist())),
            transfers=tuple(sends[:, n].tolist()),
        )
        for n, device in enumerate(devices)
    ]


def first_cuts(
    schedule: ScheduleName, p: int, m: int, v: int = 1, group: int | None = None
) -> Iterator[PathCut]:
    """Paths through one slow stage i: they imply the latency-plus-bottleneck bound.

    PROBLEM 6.3: latency + (m-1) t_i - w min(f_i, b_i). One path is longest if the backward of
    stage i dwarfs all else, the other if its forward does, and so on with weight gradients; each to
    the last operation of device 0 and of that of stage i.
    """
    heavy, stages = 1_000_000, p * v
    kinds = 3 if SCHEDULES[schedule].splits_backward else 2
    times = np.ones((kinds * stages, kinds * stages), dtype=np.int64)
    np.fill_diagonal(times, heavy)
    parts = np.split(times, kinds)
    send = np.ones((stages - 1, kinds * stages), dtype=np.int64)
    pipelines = Times(parts[0], parts[1], send, weight=parts[2] if kinds > 2 else None)
    graph = schedule_graph(schedule, p, m, v, group)
    end = simulate(graph, pipelines)
    for devices in (np.zeros(kinds * stages, np.int64), np.arange(kinds * stages) % stages % p):
        yield from _paths(graph, pipelines, end, devices)


def _nearby(boundaries: Sequence[int], limit: int) -> Array:
    """[N, S + 1] the split itself, then those with one boundary moved by one layer."""
    rows = [tuple(boundaries)]
    for k in range(1, len(boundaries) - 1):
        for moved in (boundaries[k] - 1, boundaries[k] + 1):
            if boundaries[k - 1] < moved < boundaries[k + 1]:
                rows.append((*boundaries[:k], moved, *boundaries[k + 1 :]))
    return np.array(rows[: limit + 1], dtype=np.int64)


def harvest(
    space: SplitSpace,
    placement: PlacementCosts,
    decisions: Decisions,
    shares: Sequence[int],
    bound_ns: int,
) -> Harvest:
    """Simulates a plan, and traces its paths and those of its neighbours.

    Of the plan itself every path that ends, with its tail, after `bound_ns`: with these a model
    cannot value the plan below its simulated step time. One path each for splits with one moved
    boundary, and for each replica with one micro-batch more or less, if among `shares`.
    """
    tables, config = space.tables, space.tables.config
    costs = split_costs(tables, placement, decisions.boundaries, decisions.micro_batches)
    # [p] from the end of a device to that of the step, were it the last to finish
    tails = tail_ns(costs, np.where(np.eye(config.pp, dtype=bool), 0, -INFINITY)).max(axis=0)
    ready = np.zeros(config.pp, dtype=np.int64)
    groups = placement.group_of_slot.reshape(config.pp, config.dp)
    devices = np.arange(config.num_stages) % config.pp
    cuts: list[PathCut] = []
    for alike in replica_classes(placement, config.dp):
        planned = {decisions.micro_batches[r] for r in alike.replicas}
        near = {share for m in planned for share in (m - 1, m + 1)} & set(shares)
        for m in sorted(planned | near):
            graph = schedule_graph(config.schedule, config.pp, m, *config.chunking)
            num_neighbours = BATCH_ENTRIES // graph.num_operations if m in planned else 0
            splits = _nearby(decisions.boundaries, num_neighbours)
            # Of splits without room as if nothing were recomputed: their paths are paths, too.
            r, kinds = alike.replicas[0], tables.message_kind[splits[:, 1:-1].T]
            send = placement.send_ns[kinds, devices[:-1, None], r]
            times = space.times(m, groups[devices, r, None, None], splits, send)
            end = simulate(graph, times)
            ends = end[graph.last]
            cuts.extend(_paths(graph, times, end, (ends + tails[:, None]).argmax(axis=0)))
            if m in planned:
                ready = np.maximum(ready, ends[:, 0])
                late = np.flatnonzero(ends[:, 0] + tails > bound_ns)
                first = 0 * late  # the plan itself, once for every path
                plan = Times(
                    times.forward[:, first],
                    times.backward[:, first],
                    times.send[:, first],
                    times.blocking,
                    weight=None if times.weight is None else times.weight[:, first],
                )
                cuts.extend(_paths(graph, plan, end[:, first], late))
    return Harvest(int(tail_ns(costs, ready).max()), tuple(dict.fromkeys(cuts)))


#: Weight of the dearest nodes, if what models minimise, a sum over configurations, stays below the
#: other.
LARGEST_WEIGHT = 10_000
LARGEST_SUM = 1 << 62


@dataclass(frozen=True)
class OpenConfig:
    """A config with a proved bound of its step times; `price`: what a nanosecond of them costs."""

    tables: CostTables
    price: float = 1.0
    bound_ns: int = 0
    given: Given = ALL_FREE


def largest_share(tables: CostTables, step_time_limit_ns: int) -> int:
    """No replica of a plan within this step time has more micro-batches.

    Proof: the stages of a replica work at least the sum over layers of the fastest group's
    forward + backward time on each micro-batch; the slowest of its p stages works at least 1/p of
    that, on each of its m micro-batches, one after the other.
    """
    return max(0, step_time_limit_ns) * tables.config.pp // max(tables.least_work_ns, 1)


def shares_of(tables: CostTables, given: Given) -> Sequence[int]:
    """Micro-batches that a replica may have, ascending."""
    if given.micro_batches is not None:
        return sorted(set(given.micro_batches))
    if tables.instance.search.micro_batches == "even":
        return even_shares(tables)[:1]
    return share_range(tables, given.largest_share)


def whole_weights(configs: Sequence[OpenConfig]) -> list[int]:
    """Whole numbers near the ratios of prices: what guides an engine, and proves nothing."""
    prices = [config.price for config in configs]
    dearest = max(prices, default=0.0)
    if min(prices, default=0.0) == dearest:
        return [1] * len(prices)
    longest_ns = sum(2 * (config.tables.longest_ns + 1) for config in configs)
    largest = min(LARGEST_WEIGHT, LARGEST_SUM // longest_ns)
    return [(price and max(1, round(price / dearest * largest))) or 0 for price in prices]


class HeldConfigs:
    """held: indices of configs, in the order of the model. shares: what replicas of each may have.

    weights: of every configuration, held or not. built: the model.
    """

    def __init__(self, model: Model, configs: Sequence[OpenConfig], pool: CutPool) -> None:
        self.built, self.configs, self._pool = ManyConfigs(model), configs, pool
        self.weights = whole_weights(configs)
        self.held: list[int] = []
        self.shares: dict[int, Sequence[int]] = {}

    def part(self, index: int) -> OneConfig:
        """The part of a configuration that is held."""
        return self.built.parts[self.held.index(index)]

    def hold(self, index: int, bound_ns: int, target_ns: int) -> None:
        """Adds a configuration; step times are at least the bound, and below the target."""
        tables = self.configs[index].tables
        limit_ns = min(target_ns, 2 * tables.longest_ns + 2) - 1
        share = largest_share(tables, limit_ns)
        given = replace(self.configs[index].given, largest_share=share, max_step_time_ns=limit_ns)
        part = self.built.add_config(tables, self.weights[index], given)
        part.raise_step_time(bound_ns)
        self.held.append(index)
        self.shares[index] = shares_of(tables, given)
        config, cuts = tables.config, set(self._pool.of(tables.config))
        for m in self.shares[index]:
            cuts.update(first_cuts(config.schedule, config.pp, m, *config.chunking))
        for cut in sorted(cuts):
            part.add_cut(cut)

    def add_cuts(self, index: int, cuts: Sequence[PathCut]) -> bool:
        """Whether any is new for this configuration; others that they hold for learn them too."""
        pool = self._pool.of(self.configs[index].tables.config)
        for held_index in self.held:
            if (
                held_index != index
                and self._pool.of(self.configs[held_index].tables.config) is pool
            ):
                for cut in cuts:
                    if cut.micro_batches in self.shares[held_index]:
                        self.part(held_index).add_cut(cut)
        are_new = [self.part(index).add_cut(cut) for cut in cuts]
        return any(are_new)
