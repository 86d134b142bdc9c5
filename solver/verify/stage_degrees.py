"""Configs whose stages have degrees of their own: all layouts as one graph, bounds, and trials.

A place is a node group with the degrees of a stage there; instances and configurations here list
each place as a node group. All replicas of a stage are at one place: within the GPUs left on a
node, or on whole nodes of a group. What is open after a stage are the nodes used up of every group,
the GPUs taken of the last one, and the place of the stage: so these layouts are paths through a
graph as in `orders`. Every node used ends up full.

Work and latency. All replicas are alike, with m micro-batches each. For every stage i, one way
through the step has what a micro-batch takes on each stage, t, there and back, and c_i t_i besides,
see `passes_left`; and the GPUs of stage i are busy for m t_i. Let c be the least c_i. Weigh stage i
by its GPUs times v of their node group, over the same sum for all GPUs of the nodes used: stages
fill these, so the weights add up to 1. The weighted mean of those ways is as long as a step at
most, and so is that of the busy times:

    T >= sum of t_i (1 + c weight_i),    T >= sum of m t_i weight_i

where each layer counts no less than at the place that makes its term least. The ways also pass all
pp - 1 boundaries of stages twice. A stage on n nodes hides n - 1 of the borders between nodes, and
all n together are the nodes used: so with N the most that a stage may have, no fewer than
nodes / N - 1 boundaries lie between nodes. Any v >= 0 will do: here that by which a node group does
all layers in equal time. Weights of 1 / pp for every stage add up to 1, too, and so does any mean
of the two, and the former with some of the latter taken off, as long as no place has a negative
one. A stage has as many GPUs as the other pp - 1 leave it, which have the smallest slots at least.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from formulations.costs.intervals import Numbers
from formulations.costs.stage_costs import StageCosts
from formulations.costs.stage_places import StagePlacer, stage_tables
from formulations.costs.tables import CostTables
from formulations.costs.transfers import outside_ns
from formulations.plan import ByPlace, Configuration, Place, Plan
from formulations.space import PlanSpace
from formulations.space.slots import layout_plan, stage_places
from formulations.units import ceil_div
from solver.interrupt import Deadline
from solver.verify.bounds import Prover
from solver.verify.closed_forms import passes_left
from solver.verify.exhaust import Outcome, Trial
from solver.verify.findings import NOISE
from solver.verify.orders import OrderGraph, Spot, Spots, Tally, Used, exact_tally
from solver.verify.refutation import question_of


class StageGraph(OrderGraph):
    """The graph of one config of an instance; its own instance and config are by place.

    A node starts with the GPUs that stages before have taken of it, in place of a slot.
    """

    def __init__(self, by_place: ByPlace) -> None:
        instance, config, places = by_place.instance, by_place.config, by_place.places
        self.cluster, self.whole, self.places = instance.cluster, config, places
        self.by_place, self.node_gpus = by_place, by_place.node_gpus
        tables = stage_tables(instance, config, places)
        self.placer = StagePlacer(tables)
        units = exact_tally(config.nodes_used).weights
        weights = (
            tuple(n * self.placer.num_nodes(x) for n in units[j]) for x, (j, _) in enumerate(places)
        )
        super().__init__(tables, Tally(tuple(weights), config.nodes_used))
        self.limited = self.instance.search.target == "flagscale"
        self.width, self.lanes = config.dp, range(1)

    def _gpus(self, place: int) -> tuple[int, int]:
        """Of a node, and of all replicas of a stage."""
        j, degrees = self.places[place]
        return self.node_gpus[j], self.whole.dp * degrees.width

    def _room(self, spots: Spots) -> int:
        """GPUs left of the last node of a stage; none before the first."""
        if not spots:
            return 0
        ((place, start),) = spots
        size, gpus = self._gpus(place)
        return -(start + gpus) % size

    def _placed(self, k: int, used: Used, before: Spots) -> Iterator[tuple[Used, Spots]]:
        """On GPUs left of a node, or on whole nodes of a group; the last one leaves none."""
        room = self._room(before)
        for x, (j, _) in enumerate(self.places):
            (size, gpus), more = self._gpus(x), self.tally.plus(used, x)
            spots = (Spot(x, size - room if room else 0),)
            if room:
                fits, more = j == self.places[before[0].group][0] and gpus <= room, used
            else:
                fits = gpus <= size or gpus % size == 0
            full = more == self.tally.most and not self._room(spots)
            if fits and more is not None and (full or k + 1 < self.whole.pp):
                yield more, spots

    def _owners(self, k: int, spots: Spots) -> list[Spot]:
        return list(spots)

    def _begins(self, k: int, spots: Spots) -> tuple[int, ...]:
        return tuple(place for place, start in spots if not start)

    def _sends_ns(self, k: int, before: Spots, spots: Spots) -> list[tuple[int, ...]]:
        if not k:
            return super()._sends_ns(k, before, spots)
        ((source, _),), ((target, start),) = before, spots
        return [self.placer.send_ns(source, target, start > 0)]

    def _tail_row(self, k: int, spots: Spots) -> int:
        ((place, _),) = spots
        embedding = self._embedding_ns(place) if k in (0, self.whole.pp - 1) else 0
        return self.epilogues.row_of_rings([place], embedding, self.placer.rings(place))

    def _embedding_ns(self, place: int) -> int:
        """Tied embeddings, as far as an outer stage decides; on one node only if all stages are."""
        return self.placer.embedding_ns(place, sum(self.whole.nodes_used) == 1)

    def plan(self, prover: Prover, steps: Sequence[int], ends: Sequence[int]) -> Plan:
        """The plan of these steps and layer boundaries; `prover`: of the instance by place."""
        m = self.instance.workload.global_batch // self.whole.micro_batch // self.whole.dp
        # as layouts are numbered: behind the stage before, or on a new node
        pairs = zip(self.built, steps, strict=True)
        layout = [2 * int(step.group[i, 0]) + (not step.begins[i]) for step, i in pairs]
        choose = StageCosts(prover.tables(self.config)).recomputed
        return layout_plan(self.by_place, layout, ends, [m] * self.whole.dp, choose)


class StageWork:
    """The bounds for all configurations of an instance."""

    def __init__(self, prover: Prover) -> None:
        self.prover, self.instance = prover, prover.instance
        self._tables: dict[tuple[object, ...], CostTables] = {}

    def _tables_of(self, config: Configuration, places: tuple[Place, ...]) -> CostTables:
        """Tables by place [C], for layer times and messages of any number of replicas."""
        key = config.micro_batch, config.recompute[0], places
        if key not in self._tables:
            self._tables[key] = stage_tables(self.instance, config, places)
        return self._tables[key]

    def _places(self, config: Configuration) -> tuple[Place, ...]:
        """Those that leave the other stages the smallest slots."""
        groups = zip(self.instance.cluster.groups, config.nodes_used, strict=True)
        places = stage_places(self.instance, config)
        others = (config.pp - 1) * config.dp * min(degrees.width for _, degrees in places)
        rest = sum(n * group.gpus_per_node for group, n in groups) - others
        return tuple(place for place in places if place[1].width * config.dp <= rest)

    def _by_gpus(self, config: Configuration, places: tuple[Place, ...], work: Numbers) -> Numbers:
        """[C] weights of a stage of one replica at every place, by its GPUs."""
        width = np.array([degrees.width for _, degrees in places], dtype=np.float64)
        busy, group = np.maximum(work.sum(axis=0) * width, 1), np.array([j for j, _ in places])
        v = {j: 1 / float(busy[group == j].min()) for j in set(group.tolist())}
        sizes = [node_group.gpus_per_node for node_group in self.instance.cluster.groups]
        gpus = sum(v[j] * config.nodes_used[j] * sizes[j] for j in v)
        return np.asarray(np.array([v[j] for j in group.tolist()]) * width / gpus)

    def bound_ns(self, config: Configuration) -> int:
        """No plan has a shorter step."""
        places = self._places(config)
        tables = self._tables_of(config, places)
        times = np.array([tables.forward_ns, tables.backward_ns], dtype=np.float64)  # [2, L, C]
        work, dp = times.sum(axis=0), config.dp
        m = self.instance.workload.global_batch // config.micro_batch // dp
        shares = np.zeros((3, 1))
        shares[:2, 0] = np.where(work > 0, times / np.maximum(work, 1), 0.0).max(axis=(1, 2))
        c = max(0.0, float(passes_left([config], shares, np.array([m])).min()))
        by_gpus, once_ns = self._by_gpus(config, places, work), self._once_ns(config, tables)
        # by GPUs, with even ones, or less these up to where none is negative
        bounds, evenly, lowest = [], 1 / (dp * config.pp), float(by_gpus.min())
        far = config.pp / max(c, 1.0)
        far = far if lowest >= evenly else min(far, lowest / (evenly - lowest))
        for part in (0, 0.5, -far):
            weights = np.maximum((1 - part) * by_gpus + part * evenly, 0.0)
            bounds.append((work * (1 + c * dp * weights)).min(axis=1).sum() + once_ns)
            bounds.append((work * (m * dp * weights)).min(axis=1).sum())
        return int(max(bounds) * (1 - 1000 * NOISE))

    def _once_ns(self, config: Configuration, tables: CostTables) -> float:
        """Least messages of a micro-batch between nodes, there and back."""
        widest_span, times = 1, []
        groups = zip(tables.instance.cluster.groups, tables.config.degrees, strict=True)
        for x, (group, degrees) in enumerate(groups):
            span = ceil_div(config.dp * degrees.width, group.gpus_per_node)
            flows, link = config.dp // span, group.inter_node
            times.append(outside_ns(tables, x, flows, link, tables.tensors[0], degrees.tp))
            widest_span = max(widest_span, span)
        borders = ceil_div(sum(config.nodes_used), widest_span) - 1
        return 2.0 * borders * min(times)


class StageTrial(Trial):
    """The plans of such a configuration against one claim; its graph is by place."""

    def __init__(self, graph: StageGraph, below_ns: int, clock: Deadline) -> None:
        prover = Prover(PlanSpace(graph.instance.but(search={"micro_batches": "even"})))
        super().__init__(question_of(prover, graph.config, graph, below_ns, clock), below_ns)
        self.stage_graph, self.priced_for = graph, graph.by_place.instance

    def plan(self, steps: Sequence[int], ends: Sequence[int], shares: Sequence[int]) -> Plan:
        """The plan of these steps and layer boundaries."""
        return self.stage_graph.plan(self.prover, steps, ends)


def exhaust_stages(
    prover: Prover, config: Configuration, below_ns: int, clock: Deadline
) -> Outcome | None:
    """Whether any plan has a step time below this; None if there are too many ways to place it.

    Raises TimeUp.
    """
    places = stage_places(prover.instance, config)
    graph = StageGraph(ByPlace(prover.instance, config, places))
    return None if graph.steps is None else StageTrial(graph, below_ns, clock).outcome()
