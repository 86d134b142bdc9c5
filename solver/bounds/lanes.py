"""Lanes of a config on given numbers of nodes, whatever the node order, and how places are divided.

Lanes are the replicas in blocks of q = `lane_width`, which no node border parts: on every stage a
lane stands on one node. So a node of c slots is c / q places, each for one stage of one lane, and a
lane of p stages takes p places. Where every node used is one place, and no link joins zones, any
dealing of the places to stages and lanes is a node order: the ways here are `exact` if all messages
are equally long, as the least one stands for all. Where no stage spans zones, `split`, each lane
has as many places in a zone as stages lie there.

Classes are node groups. The tail of a stage depends on all nodes of the stage. A lane knows only
its own, which gives a lower bound, unless it is decided on which classes the stage stands.

How many micro-batches all lanes can have together is a knapsack, solved by dynamic programming
with a dimension for every class of places (Kellerer, Pferschy and Pisinger 2004, multidimensional
knapsack). shares: by counts of places, the largest share of a lane with these; [A] for A questions
at once, 0 or less if there is no such lane. With G_l(t) the most micro-batches that l lanes can
have with t places by class, G_0(0) = 0 and G_l(t) = max over counts c of G_{l-1}(t - c) + share(c).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod

import numpy as np

from formulations.costs.intervals import interval_sums
from formulations.costs.placement import Placer
from formulations.coverage import divided
from solver.bounds.node_classes import ClassGraph, Resources, Step, Tail, classes_of, steps
from solver.graph.all_orders import lane_width
from solver.graph.placements import finish_ns
from solver.graph.problem import Array, Intervals, Mask, Numbers, SplitProblem

Counts = tuple[int, ...]  #: places of one lane by class


def lane_counts(
    stages: int, lanes: int, there: Counts, parted: Sequence[Sequence[int]]
) -> Iterator[Counts]:
    """All ways to divide the places of one lane among the classes, which have so many.

    parted: classes of every zone where no stage spans two: lanes have equally many of its places.
    """
    for counts in divided(stages, there):
        if all(
            lanes * sum(counts[i] for i in zone) == sum(there[i] for i in zone) for zone in parted
        ):
            yield counts


#: Less than any number of micro-batches, also if a few are added.
NEVER = -(1 << 40)


def grids(shares: Mapping[Counts, int | Array], lanes: int, places: Sequence[int]) -> list[Array]:
    """Most micro-batches of 0, 1, .. lanes: [places + 1 of every class but the last, A].

    The last class has what is left: a lane has p places. Below 0: the places cannot be dealt so.
    Of single shares without the last axis.
    """
    size = np.asarray(next(iter(shares.values()))).shape
    share_of = [(c[:-1], np.where(np.greater(m, 0), m, NEVER)) for c, m in shares.items()]
    grid = np.full((*(n + 1 for n in places[:-1]), *size), NEVER)
    grid[(0,) * (len(places) - 1)] = 0
    tables = [grid]
    for _ in range(lanes):
        more = np.full_like(grid, NEVER)
        for counts, share in share_of:
            to = tuple(slice(c, None) for c in counts)
            since = tuple(slice(0, n + 1 - c) for c, n in zip(counts, places, strict=False))
            more[to] = np.maximum(more[to], tables[-1][since] + share)
        tables.append(more)
    return tables


def together(shares: Mapping[Counts, int | Array], lanes: int, places: Sequence[int]) -> Array:
    """[A] most micro-batches of all lanes with all places."""
    return np.asarray(grids(shares, lanes, places)[-1][tuple(places[:-1])])


def needed(
    shares: Mapping[Counts, int], lanes: int, places: Sequence[int], total: int
) -> dict[Counts, int]:
    """What a lane with each of these counts has to do at least if all lanes are to have `total`.

    That much, less the most that the other lanes can do with the places left. Counts that cannot
    do it are left out: no lane has them.
    """
    if not shares:
        return {}
    grid, least_share = grids(shares, lanes - 1, places)[-1], dict[Counts, int]()
    for counts, share in shares.items():
        places_left = tuple(n - c for n, c in zip(places[:-1], counts, strict=False))
        if min(places_left, default=0) >= 0:
            required = max(1, total - int(grid[places_left]))
            if required <= share:
                least_share[counts] = required
    return least_share


def dealt(shares: Mapping[Counts, int], lanes: int, places: Sequence[int]) -> list[Counts]:
    """Counts of every lane that together can have the most, where all places can be dealt."""
    tables = grids(shares, lanes, places)
    places_left, chosen = tuple(places[:-1]), []
    for before, now in zip(reversed(tables[:-1]), reversed(tables[1:]), strict=True):
        for counts, share in shares.items():
            rest = tuple(n - c for n, c in zip(places_left, counts, strict=False))
            if min(rest, default=0) >= 0 and before[rest] + share == now[places_left]:
                chosen.append(counts)
                places_left = rest
                break
    return chosen


#: More than float noise, relative.
MARGIN = 1e-9

Hosts = tuple[int, ...] | None  #: the classes that a stage stands on; None while undecided


class Lane:
    """Any lane of a configuration; split: no stage spans zones.

    number: of lanes, each of `width` replicas. classes: [J] node groups, the first of them the
    fastest; there: places of each in the configuration.
    """

    def __init__(self, intervals: Intervals, placer: Placer, split: bool) -> None:
        self.intervals, self.placer, self.tables = intervals, placer, intervals.tables
        config, self.classes = self.tables.config, classes_of(intervals)
        self.width = lane_width(self.tables)
        self.number = config.dp // self.width
        sizes = zip(config.nodes_used, self.tables.slots_per_node, strict=True)
        places = [nodes * slots // self.width for nodes, slots in sizes]
        self.there: Counts = tuple(places[j] for j in self.classes)
        zones = [placer.zones.zone_of_group[j] for j in self.classes] * split
        self._parted = [
            [i for i, home in enumerate(zones) if home == zone] for zone in sorted(set(zones))
        ]
        flows = config.dp if split else self.width
        self.costs = ClassGraph(intervals, placer, self.classes, flows)
        self._steps: dict[Counts, list[list[Step]]] = {}
        self._tails: dict[tuple[int, ...], Tail] = {}

    def counts(self) -> Iterator[Counts]:
        """All ways to divide the places of one lane among the classes."""
        return lane_counts(self.tables.config.pp, self.number, self.there, self._parted)

    @property
    def num_edges(self) -> int:
        """About how many edges the ways on all counts have.

        Those of a lane with the counts of the mean lane, times the ways to divide its places; runs
        of layers are taken to be up to twice as long as they would be if all stages were alike.
        """
        p, size = self.tables.config.pp, self.tables.num_layers
        states = prod(min(p, n // self.number) + 1 for n in self.there[:-1]) * len(self.classes)
        return sum(1 for _ in self.counts()) * p * states * size * min(size, 2 * size // p)

    @cached_property
    def exact(self) -> bool:
        """Whether the ways are node orders, with their own costs."""
        config, sizes = self.tables.config, self.tables.slots_per_node
        used = config.groups_used
        single_places = all(sizes[j] == self.width for j in used)
        alike = len(self.tables.tensors) == 1
        return single_places and alike and not self.tables.instance.cluster.has_zones

    @cached_property
    def room(self) -> Array:
        """[J, n, n] micro-batches in flight that have room."""
        room: Array = self.intervals.room[self.classes]
        return room

    @cached_property
    def _speeds(self) -> Numbers:
        """[J] what one ns of a slot is worth in micro-batches of a replica: see `most`."""
        work = self.costs.work
        layers = np.arange(work.shape[-1] - 1)
        each = work[:, layers, layers + 1]
        chain_work = np.maximum(each.sum(axis=1), 1)
        least_sum = float((each / chain_work[:, None]).min(axis=0).sum())
        speeds: Numbers = 1 / (chain_work * max(least_sum, MARGIN))
        return speeds

    def most(self, counts: Counts, cutoff: int) -> int:
        """The most micro-batches of a lane with these counts below the cutoff, by its work.

        Proof. A slot of class j is busy for m t below the cutoff, t the time of one micro-batch.
        With W_j the time of all layers on class j, add up m t / W_j over the slots of a replica:
        each layer x adds m times the least of t_xj / W_j at least.
        """
        return int((cutoff - 1) * float(np.array(counts) @ self._speeds) * (1 + MARGIN))

    def least_ns(self, total: int) -> int:
        """A step time that no plan is below whose lanes have `total` micro-batches, by `most`."""
        return int(total / float(np.array(self.there) @ self._speeds) * (1 - MARGIN))

    def _steps_of(self, counts: Counts) -> list[list[Step]]:
        """Steps of a lane with exactly these counts."""
        if counts not in self._steps:
            classes = range(len(self.classes))
            places = Resources(tuple(tuple(int(i == j) for i in classes) for j in classes), counts)
            any_class = dict.fromkeys(classes, 1)
            self._steps[counts] = steps([any_class] * self.tables.config.pp, places) or []
        return self._steps[counts]

    def problem(
        self, counts: Counts, layers: Sequence[Mask], hosts: Sequence[Hosts], share: int
    ) -> SplitProblem:
        """One replica of a lane with these counts and micro-batches.

        layers, hosts: per stage [n, n] what it may have, and where it may stand.
        """
        classes, allowed, rows = range(len(self.classes)), list[Mask](), list[Array]()
        for k, (mask, of_stage) in enumerate(zip(layers, hosts, strict=True)):
            stands = np.array([of_stage is None or j in of_stage for j in classes])
            allowed.append(mask & self.costs.allowed(k, share) & stands[:, None, None])
            rows.append(np.array([self._tail(of_stage or (j,)) for j in classes]))
        tails = list(self._tails.values())
        return self.costs.problem(self._steps_of(counts), allowed, rows, tails, share)

    def _tail(self, hosts: tuple[int, ...]) -> int:
        """Row of the tail of a stage on these classes."""
        if hosts not in self._tails:
            self._tails[hosts] = self.costs.tails[hosts[0]]
            if self.exact:
                # Nodes of each class; of them all, if they are more than lanes.
                groups = [self.classes[j] for j in hosts]
                groups += groups[:1] * (self.number - len(groups))
                nodes = [self.placer.terms(j, 0) for j in groups]
                sync, latency, gather, gather_latency = self.placer.stage(0, nodes, groups)
                # Nodes that are one place send equally much from any place of a stage.
                first, last = zip(*(self.costs.tails[j].embedding for j in hosts), strict=True)
                finish = finish_ns(self.intervals, groups, gather, gather_latency)
                embedding = max(first), max(last)
                self._tails[hosts] = Tail(interval_sums(sync) + latency, finish, embedding)
        return list(self._tails).index(hosts)
