"""What is decided inside a configuration, the ranges that the plan space leaves for it, and cuts.

Paths of the operation graph are lower bounds of the time when a stage is done. A path visits
operations of stages and transfers between them. The graph of (schedule,
p, m) does not depend on the split, the placement or the shares, so a path that was critical for
one plan bounds all plans: the last operation of its device ends no earlier than the sum of the
times along it.

Where `SCHEDULES[..].prefixes` it also bounds replicas with more micro-batches. The graph of m is
what is left of the graph of m' > m when micro-batches m.. are removed: 1F1B runs min(p-1-k, m)
forwards first, and the order of the first m micro-batches on every stage is the same for m and m'
(GPipe alike). Each edge of the smaller graph is thus a path of the larger one, at least as long,
and the last operation of a device comes after its last one of micro-batch m - 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import CostTables
from formulations.instance import Instance
from formulations.plan import Plan, uniform_plan
from formulations.space.slots import layout_plan

Start = tuple[int, int]  #: node group, first slot


@dataclass(frozen=True)
class Given:
    """What is given of the decisions inside a config, and limits on them; what is None is decided.

    order: group index per node; boundaries: p + 1 layers; micro_batches: one per replica.
    largest_share: no replica need have more micro-batches than this.
    """

    order: Sequence[int] | None = None
    boundaries: Sequence[int] | None = None
    micro_batches: Sequence[int] | None = None
    largest_share: int | None = None
    max_step_time_ns: int | None = None


#: Without any limit.
ALL_FREE = Given()


@dataclass(frozen=True)
class Decisions:
    """What is chosen inside a configuration: node groups in order, S + 1 boundaries, R shares.

    In place of the order a layout, `stage_layouts`, where every stage has its own degrees.
    """

    order: tuple[int, ...]
    boundaries: tuple[int, ...]
    micro_batches: tuple[int, ...]

    def plan(self, tables: CostTables) -> Plan:
        """The plan that they make of the configuration."""
        chosen = self.order, self.boundaries, self.micro_batches, StageCosts(tables).recomputed
        if tables.by_place is not None:
            return layout_plan(tables.by_place, *chosen)
        return uniform_plan(tables.instance, tables.config, *chosen)


def decisions_of(instance: Instance, plan: Plan) -> Decisions:
    """The decisions of a plan whose replicas share one split."""
    groups = instance.cluster.node_groups
    return Decisions(
        order=tuple(groups[node] for node in plan.node_order),
        boundaries=(0, *(stage.layers[1] for stage in plan.replicas[0].stages)),
        micro_batches=tuple(replica.micro_batches for replica in plan.replicas),
    )


def least_ends(tables: CostTables) -> list[int]:
    """Least end of a stage that starts at layer 0 .. L; L + 1 if too few blocks follow."""
    ends = np.searchsorted(tables.blocks_before, tables.blocks_before + tables.min_blocks)
    return [max(start + 1, int(end)) for start, end in enumerate(ends)]


def only_order(tables: CostTables) -> tuple[int, ...] | None:
    """The node order if nodes of a single group leave no choice, else None."""
    used = tables.config.groups_used
    return (used[0],) * tables.config.nodes_used[used[0]] if len(used) == 1 else None


def possible_starts(tables: CostTables) -> Iterator[Start]:
    """Every (j, a) such that some nodes besides one of group j fill exactly a slots."""
    used = tables.config.nodes_used
    for j, count in enumerate(used):
        if not count:
            continue
        sums = {0}
        for i, nodes in enumerate(used):
            others = range(nodes + 1 - (i == j))
            sums = {a + n * tables.slots_per_node[i] for a in sums for n in others}
        yield from ((j, a) for a in sorted(sums))


def even_shares(tables: CostTables) -> tuple[int, ...]:
    """Micro-batches per replica, as equal as whole numbers allow, larger ones first."""
    each, left_over = divmod(tables.num_micro_batches, tables.config.dp)
    return tuple(each + (r < left_over) for r in range(tables.config.dp))


def share_range(tables: CostTables, largest: int | None = None) -> range:
    """Shares that a replica may have if none exceeds `largest` (None: no such limit).

    Every replica has at least one micro-batch, so none has more than M - (dp - 1); and none has
    less than what the others leave at their largest. Empty if M micro-batches do not fit.
    """
    total, dp = tables.num_micro_batches, tables.config.dp
    high = total - dp + 1 if largest is None else min(largest, total - dp + 1)
    return range(max(1, total - (dp - 1) * high), high + 1)


@dataclass(frozen=True, order=True)
class PathCut:
    """How often a path to the last operation of `device` visits what; S virtual stages.

    operations: [kinds, S] forwards, backwards and, where they are split off, weight gradients.
    transfers: [S - 1] per boundary, both ways.
    """

    micro_batches: int
    device: int
    operations: tuple[tuple[int, ...], ...]
    transfers: tuple[int, ...]

    def sends(self, blocking: bool) -> tuple[int, ...]:
        """[S - 1] how often each boundary's transfer time counts; blocking: with its sender."""
        if not blocking:
            return self.transfers
        forward, backward, *_ = self.operations
        return tuple(f + b for f, b in zip(forward[:-1], backward[1:], strict=True))
