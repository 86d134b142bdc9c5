"""All node orders of a config at once: which nodes can hold which stage, and what that costs.

A node of group j covers c_j slots in a row; stage k of replica r has slot k dp + r. Going through
the slots from the first to the last, what is still open after a stage depends only on how many
nodes of each group are used up and on the nodes of that stage. So orders are paths through a graph
with such states; a step places one stage. Where the target runs some orders alone, the degrees of
the first stage stay open, too. Replicas that are always on the same nodes are a lane:
blocks of q = gcd(dp, all c_j used) replicas.

What is told apart of the nodes used up is a tally: weights of the groups that add up. With one
weight per group, 1 for itself, those are all orders. With fewer it is more than these, and a
smaller graph: every order is still a path, as its tally is what the nodes of the configuration
weigh.

Costs of a step are those of the plan, and exact but for links between zones. What a stage sends
over these is known, as it is decided by that stage and the one before. Of rings between zones only
the stage's own are counted, not those of other stages that share the link, and tied embeddings
that cross not at all: a plan takes no less time. Where no stage is to lie in two zones (`apart`)
there are no such rings, and all replicas cross together.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from math import gcd

import numpy as np

from formulations.costs.intervals import Array, interval_sums
from formulations.costs.tables import CostTables
from formulations.costs.transfers import inside_ns, outside_ns
from formulations.instance import Link
from formulations.plan import Configuration, Degrees
from formulations.space.slots import limits_orders, may_follow
from solver.verify.epilogue import Epilogues, LeastCosts

#: With more steps times lanes for one stage, the graph is not built.
MOST_STEPS = 100_000

Used = tuple[int, ...]  #: what the nodes used up weigh, by the dimensions of a tally


@dataclass(frozen=True)
class Spot:
    """A node by its group and the slots that it covers."""

    group: int
    slots: range


def stage_slots(config: Configuration, k: int) -> range:
    """Slots of a stage."""
    return range(k * config.dp, (k + 1) * config.dp)


State = tuple[Used, tuple[Spot, ...], Degrees | None]  #: first: where orders are limited


@dataclass(frozen=True)
class Tally:
    """weights: [J][D] what a node of a group adds; most: [D] what all nodes together may."""

    weights: tuple[Used, ...]
    most: Used

    def plus(self, used: Used, group: int) -> Used | None:
        """With a node more; None if that is too much."""
        after = tuple(map(sum, zip(used, self.weights[group], strict=True)))
        return after if all(n <= limit for n, limit in zip(after, self.most, strict=True)) else None


def exact_tally(nodes: Sequence[int]) -> Tally:
    """Nodes of every group, counted."""
    unit = [tuple(int(i == j) for i in range(len(nodes))) for j in range(len(nodes))]
    return Tally(tuple(unit), tuple(nodes))


@dataclass(frozen=True)
class Step:
    """The ways to place one stage; A of them, R lanes, times in ns.

    source, target: [A] states before and after. group: [A, R] node group. send: [A, R, K] message
    between the stage before and this one, either way, of every number of tensors. back: the same
    between the last stage and the first one, as far as the nodes of the first decide it; 0 on
    others. tail: [A] row of `Epilogues`. begins: per step the groups of the nodes whose
    first slots are of this stage. send_back: [A, R] messages to the stage before, where these take
    other times.
    """

    source: Array
    target: Array
    group: Array
    send: Array
    back: Array
    tail: Array
    begins: tuple[tuple[int, ...], ...]
    num_targets: int
    send_back: Array | None = None


class OrderGraph:
    """The graph of one configuration. `steps` is None if there are too many."""

    def __init__(self, tables: CostTables, tally: Tally | None = None, apart: bool = False) -> None:
        self.tables, self.apart = tables, apart
        self.instance, self.config = tables.instance, tables.config
        self.tally = tally or exact_tally(self.config.nodes_used)
        self.limited = limits_orders(self.instance, self.config)
        self.sizes = tables.slots_per_node
        self.width = gcd(self.config.dp, *(self.sizes[j] for j in tables.config.groups_used))
        self.lanes = range(0, self.config.dp, self.width)
        self.epilogues, self.most_steps = Epilogues(tables), MOST_STEPS
        self._transfer_ns = lru_cache(maxsize=None)(self._send_ns)

    @cached_property
    def steps(self) -> tuple[Step, ...] | None:
        """Per stage, from the state before all nodes on."""
        states: list[State] = [((0,) * len(self.tally.most), (), None)]
        steps = []
        for k in range(self.config.pp):
            step = self._step(k, states)
            if step is None:
                return None
            steps.append(step[0])
            states = step[1]
        return tuple(steps)

    @property
    def built(self) -> tuple[Step, ...]:
        """The steps, which exist."""
        assert self.steps is not None
        return self.steps

    @cached_property
    def alike(self) -> list[int]:
        """Of every lane: the first lane that has the same groups and transfers."""
        first: dict[bytes, int] = {}
        first_alike = []
        for r in range(len(self.lanes)):
            columns = [part[:, r] for s in self.built for part in (s.group, s.send)]
            columns += [s.back[:, r] for s in self.built if self.config.vpp > 1]
            first_alike.append(
                first.setdefault(b"".join(column.tobytes() for column in columns), r)
            )
        return first_alike

    def _step(self, k: int, states: list[State]) -> tuple[Step, list[State]] | None:
        targets: dict[State, int] = {}
        rows = []
        for index, (used, before, first) in enumerate(states):
            for after, spots in self._placed(k, used, before):
                begun = first or (self.config.degrees[spots[0].group] if self.limited else None)
                if begun:
                    degrees, *unlike = {self.config.degrees[spot.group] for spot in spots}
                    launched = (self.instance, self.config.zero, begun, degrees)
                    if unlike or not may_follow(*launched, k + 1 == self.config.pp):
                        continue
                target = targets.setdefault((after, spots, begun), len(targets))
                rows.append((index, target, before, spots))
                if len(rows) * len(self.lanes) > self.most_steps:
                    return None
        stage = stage_slots(self.config, k)
        # many rows differ in what is used up alone
        places = [spots for _, _, _, spots in rows]
        moves = [(before, spots) for _, _, before, spots in rows]
        stood = {spots: self._owners(k, spots) for spots in dict.fromkeys(places)}
        sends = {move: self._sends_ns(k, *move) for move in dict.fromkeys(moves)}
        tails = {spots: self._tail_row(k, spots) for spots in stood}
        none = [[0] * len(self.tables.tensors) for _ in self.lanes]
        backs = {
            spots: [self._back_ns(spot, r) for r, spot in zip(self.lanes, owners, strict=True)]
            for spots, owners in (() if k else stood.items())
        }
        groups = {spots: [spot.group for spot in owners] for spots, owners in stood.items()}
        size = len(rows), len(self.lanes), len(self.tables.tensors)  # A, which may be 0
        step = Step(
            source=np.array([row[0] for row in rows], dtype=np.int64),
            target=np.array([row[1] for row in rows], dtype=np.int64),
            group=np.array([groups[spots] for spots in places], dtype=np.int64).reshape(size[:2]),
            send=np.array([sends[move] for move in moves], dtype=np.int64).reshape(size),
            back=np.array([backs.get(spots, none) for spots in places], dtype=np.int64).reshape(
                size
            ),
            tail=np.array([tails[spots] for spots in places], dtype=np.int64),
            begins=tuple(
                tuple(spot.group for spot in spots if spot.slots.start in stage) for spots in places
            ),
            num_targets=len(targets),
        )
        return step, list(targets)

    def _placed(
        self, k: int, used: Used, before: tuple[Spot, ...]
    ) -> Iterator[tuple[Used, tuple[Spot, ...]]]:
        """Nodes used up and nodes of stage k, in every way to cover its slots.

        All orders of a single stage cost the same: one is enough.
        """
        first, stop = k * self.config.dp, (k + 1) * self.config.dp
        reaching = tuple(spot for spot in before if spot.slots.stop > first)
        end = reaching[-1].slots.stop if reaching else first
        if end >= stop:
            yield used, reaching
            return
        after, cluster = self._nodes(used), self.instance.cluster
        for j, more in islice(after, 1) if self.config.pp == 1 else after:
            if not (self.apart and cluster.links_among([j, *(s.group for s in reaching)])):
                spot = Spot(j, range(end, end + self.sizes[j]))
                yield from self._placed(k, more, (*reaching, spot))

    def _nodes(self, used: Used) -> Iterator[tuple[int, Used]]:
        """Groups of which a node may come next, and the tally with it."""
        for j, limit in enumerate(self.config.nodes_used):
            more = self.tally.plus(used, j) if limit else None
            if more is not None:
                yield j, more

    def _owners(self, k: int, spots: tuple[Spot, ...]) -> list[Spot]:
        """[R] node of stage k of every lane."""
        slots = (k * self.config.dp + r for r in self.lanes)
        return [next(spot for spot in spots if slot in spot.slots) for slot in slots]

    def _back_ns(self, spot: Spot, r: int) -> list[int]:
        """[K] to replica r of the first stage on this node from that of the last."""
        last = self.config.pp - 1
        if last * self.config.dp + r in spot.slots:
            return self._inside_ns(spot)
        group = self.instance.cluster.groups[spot.group]
        return self._slowest_ns([(spot.group, group.inter_node, self._arriving(spot, last))])

    def _sends_ns(
        self, k: int, before: tuple[Spot, ...], spots: tuple[Spot, ...]
    ) -> list[list[int]]:
        """[R, K] messages between stages k - 1 and k on these nodes; 0 before the first."""
        after = self._owners(k, spots)
        if not k:
            return [[0] * len(self.tables.tensors) for _ in after]
        pairs = list(zip(self._owners(k - 1, before), after, strict=True))
        zone = self.instance.cluster.zone_of_group
        legs = [(zone[source.group], zone[target.group]) for source, target in pairs]
        lanes = Counter(leg for leg in legs if leg[0] != leg[1])  # that go from zone to zone so
        dp, width = self.config.dp, self.config.dp if self.apart else self.width
        crossing = (min(lanes[leg] * width, dp) for leg in legs)
        return [self._transfer_ns(k, *pair, n) for pair, n in zip(pairs, crossing, strict=True)]

    def _send_ns(self, k: int, source: Spot, target: Spot, crossing: int) -> list[int]:
        """[K] messages between stages k - 1 and k on these nodes, so many between their zones."""
        if source == target:
            return self._inside_ns(source)
        groups, cluster = (source.group, target.group), self.instance.cluster
        flows = self._crossing(source, k - 1, self.config.dp), self._arriving(target, k - 1)
        ends = [(j, cluster.groups[j].inter_node, n) for j, n in zip(groups, flows, strict=True)]
        for link in cluster.links_among(groups):
            ends += [(j, link, crossing) for j in groups]
        return self._slowest_ns(ends)

    def _inside_ns(self, spot: Spot) -> list[int]:
        """[K] messages inside a node."""
        return [inside_ns(self.tables, spot.group, n) for n in self.tables.tensors]

    def _slowest_ns(self, ends: Sequence[tuple[int, Link, int]]) -> list[int]:
        """[K] messages over links at nodes of these groups, each with the flows that share it."""
        return [
            max(outside_ns(self.tables, j, flows, link, n) for j, link, flows in ends)
            for n in self.tables.tensors
        ]

    def _arriving(self, spot: Spot, k: int) -> int:
        """Flows from stage k to the next, or from the last to the first, that enter the node."""
        dp, last = self.config.dp, k == self.config.pp - 1
        return self._crossing(spot, 0, k * dp) if last else self._crossing(spot, k + 1, -dp)

    def _crossing(self, spot: Spot, k: int, shift: int) -> int:
        """Slots of stage k on the node whose other ends, so far on, are not on it."""
        stage = stage_slots(self.config, k)
        return sum(slot in stage and slot + shift not in spot.slots for slot in spot.slots)

    def _tail_row(self, k: int, spots: tuple[Spot, ...]) -> int:
        """Row of `epilogues` of a stage on these nodes."""
        return self.epilogues.row(k, [(spot.group, spot.slots.start) for spot in spots])


Hosts = tuple[tuple[int, ...] | None, ...]  #: per stage the groups it stands on; None: undecided


class LaneGraph(OrderGraph):
    """The ways of a lane that weighs from `lowest` to the most of a tally.

    On stages whose hosts are decided only on these; elsewhere all nodes of a stage are taken to be
    like its own.
    """

    def __init__(
        self, tables: CostTables, tally: Tally, lowest: Used, hosts: Hosts, apart: bool
    ) -> None:
        super().__init__(tables, tally, apart)
        self.hosts, self.least, self.number = hosts, lowest, self.config.dp // self.width
        self.lanes, self.most_steps = range(1), sys.maxsize  # they are few for one lane
        sizes = {self.sizes[j] for j in tables.config.groups_used}
        self.unlike = self.number > 1 and sizes != {self.width}
        if apart:  # weighs the stages in every zone too: every lane has as many there as all stages
            groups, zones = self.instance.cluster.groups, Counter[str | None]()
            for j in tables.config.groups_used:
                zones[groups[j].zone] += self.config.nodes_used[j] * self.sizes[j]
            stages = [size // self.config.dp if self.number == 1 else 1 for size in self.sizes]
            in_zones = [
                (*weights_of, *(count * (group.zone == zone) for zone in zones))
                for weights_of, count, group in zip(tally.weights, stages, groups, strict=True)
            ]
            stages_of = tuple(slots // self.config.dp for slots in zones.values())
            self.tally = Tally(tuple(in_zones), (*tally.most, *stages_of))
            self.least = (*lowest, *stages_of)
        weights = [self.tally.weights[j] for j in tables.config.groups_used]
        self.lightest, self.heaviest = (tuple(map(f, *weights, weights[0])) for f in (min, max))

    def _placed(
        self, k: int, used: Used, before: tuple[Spot, ...]
    ) -> Iterator[tuple[Used, tuple[Spot, ...]]]:
        if self.number == 1:
            yield from super()._placed(k, used, before)
            return
        first, stages_after = k * self.config.dp, self.config.pp - 1 - k
        for j, more in self._nodes(used):
            limits = zip(
                more, self.lightest, self.heaviest, self.least, self.tally.most, strict=True
            )
            if j in (self.hosts[k] or (j,)) and all(
                n + stages_after * light <= highest and n + stages_after * heavy >= lowest
                for n, light, heavy, lowest, highest in limits
            ):
                yield more, (Spot(j, range(first, first + self.width)),)

    def _send_ns(self, k: int, source: Spot, target: Spot, crossing: int) -> list[int]:
        sends = super()._send_ns(k, source, target, crossing)
        together = self.sizes[source.group] >= self.config.dp + self.width
        if not (self.unlike and together and source.group == target.group):
            return sends
        return list(map(min, sends, super()._send_ns(k, source, source, 0)))

    @cached_property
    def _least_tails(self) -> dict[int, Array]:
        """By group used [n, n] tails with a node of it at least."""
        costs, runs = LeastCosts(self.instance, self.config), self.instance.workload.layer_runs
        layers, start = costs.tail_ns()
        each = np.repeat(layers, [run.count for run in runs], axis=0)
        rows = zip(costs.config.groups_used, each.T, strict=True)
        return {j: interval_sums(per_layer) + start for j, per_layer in rows}

    def _tail_row(self, k: int, spots: tuple[Spot, ...]) -> int:
        if self.number == 1:
            return super()._tail_row(k, spots)
        (spot,) = spots
        if self.unlike:
            return self.epilogues.row_of(spot.group, self._least_tails[spot.group])
        others = [Spot(j, spot.slots) for j in self.hosts[k] or ()]
        return super()._tail_row(k, (*others, *spots * (self.number - len(others))))
