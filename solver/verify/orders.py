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
from typing import NamedTuple

import numpy as np

from formulations.costs.intervals import Array, interval_sums
from formulations.costs.tables import CostTables
from formulations.costs.transfers import inside_ns, outside_ns
from formulations.plan import Degrees
from formulations.space.slots import limits_orders, may_follow
from solver.verify.epilogue import Epilogues, LeastCosts

#: With more steps times lanes for one stage, the graph is not built.
MOST_STEPS = 100_000

Used = tuple[int, ...]  #: what the nodes used up weigh, by the dimensions of a tally


class Spot(NamedTuple):
    """A node by its group and the first slot that it covers."""

    group: int
    start: int


Spots = tuple[Spot, ...]


class State(NamedTuple):
    """After a stage: what is used up, its nodes, and degrees of the first stage where they count.

    They do where the target runs some orders alone.
    """

    used: Used
    spots: Spots
    first: Degrees | None


Move = tuple[State, State]  #: before and after a stage


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
        # many steps differ in what is used up alone
        self.owners = lru_cache(maxsize=None)(self._owners)
        self.sends = lru_cache(maxsize=None)(self._sends_ns)
        self.tail_row = lru_cache(maxsize=None)(self._tail_row)

    @cached_property
    def steps(self) -> tuple[Step, ...] | None:
        """Per stage, from the state before all nodes on; only what leads to its end."""
        levels, states = list[list[Move]](), [State((0,) * len(self.tally.most), (), None)]
        for k in range(self.config.pp):
            moves, targets = list[Move](), dict[State, State]()
            for state in states:
                for after in self._following(k, state):
                    moves.append((state, targets.setdefault(after, after)))
                    if len(moves) * len(self.lanes) > self.most_steps:
                        return None
            levels.append(moves)
            states = list(targets)
        useful = set(states)
        for k in reversed(range(self.config.pp)):
            levels[k] = [move for move in levels[k] if move[1] in useful]
            useful = {before for before, _ in levels[k]}
        return tuple(self._step(k, moves) for k, moves in enumerate(levels))

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

    def _following(self, k: int, state: State) -> Iterator[State]:
        """States after stage k, as the target runs it."""
        for used, spots in self._placed(k, state.used, state.spots):
            first = None
            if self.limited:
                degrees, *unlike = {self.config.degrees[spot.group] for spot in spots}
                first = state.first or degrees
                launched = (self.instance, self.config.zero, first, degrees)
                if unlike or not may_follow(*launched, k + 1 == self.config.pp):
                    continue
            yield State(used, spots, first)

    def _step(self, k: int, moves: Sequence[Move]) -> Step:
        numbers, targets = (
            {state: i for i, state in enumerate(dict.fromkeys(move[end] for move in moves))}
            for end in (0, 1)
        )
        pairs = [(before.spots, after.spots) for before, after in moves]
        size = len(moves), len(self.lanes)  # A, which may be 0
        groups = [[spot.group for spot in self.owners(k, spots)] for _, spots in pairs]
        sends = [self.sends(k, *pair) for pair in pairs]
        backs = [self._backs_ns(k, spots) for _, spots in pairs]
        return Step(
            source=np.array([numbers[before] for before, _ in moves], dtype=np.int64),
            target=np.array([targets[after] for _, after in moves], dtype=np.int64),
            group=np.array(groups, dtype=np.int64).reshape(size),
            send=np.array(sends, dtype=np.int64).reshape(*size, len(self.tables.tensors)),
            back=np.array(backs, dtype=np.int64).reshape(*size, len(self.tables.tensors)),
            tail=np.array([self.tail_row(k, spots) for _, spots in pairs], dtype=np.int64),
            begins=tuple(self._begins(k, spots) for _, spots in pairs),
            num_targets=len(targets),
            send_back=self._sends_back(k, pairs),
        )

    def _placed(self, k: int, used: Used, before: Spots) -> Iterator[tuple[Used, Spots]]:
        """Nodes used up and nodes of stage k, in every way to cover its slots.

        All orders of a single stage cost the same: one is enough.
        """
        first, stop = k * self.config.dp, (k + 1) * self.config.dp
        reaching = tuple(spot for spot in before if self._stop(spot) > first)
        end = self._stop(reaching[-1]) if reaching else first
        if end >= stop:
            yield used, reaching
            return
        after, cluster = self._nodes(used), self.instance.cluster
        for j, more in islice(after, 1) if self.config.pp == 1 else after:
            if not (self.apart and cluster.links_among([j, *(s.group for s in reaching)])):
                yield from self._placed(k, more, (*reaching, Spot(j, end)))

    def _begins(self, k: int, spots: Spots) -> tuple[int, ...]:
        """Groups of the nodes whose first slots are of stage k."""
        return tuple(spot.group for spot in spots if spot.start >= k * self.config.dp)

    def _stop(self, spot: Spot) -> int:
        """The first slot after those of a node."""
        return spot.start + self.sizes[spot.group]

    def _nodes(self, used: Used) -> Iterator[tuple[int, Used]]:
        """Groups of which a node may come next, and the tally with it."""
        for j, limit in enumerate(self.config.nodes_used):
            more = self.tally.plus(used, j) if limit else None
            if more is not None:
                yield j, more

    def _owners(self, k: int, spots: Spots) -> list[Spot]:
        """[R] node of stage k of every lane."""
        slots = (k * self.config.dp + r for r in self.lanes)
        return [next(spot for spot in spots if slot < self._stop(spot)) for slot in slots]

    def _backs_ns(self, k: int, spots: Spots) -> list[tuple[int, ...]]:
        """[R, K] to the first stage from the last one, as far as nodes of the first decide it."""
        slots = [(self.config.pp - 1) * self.config.dp + r for r in self.lanes]
        none = (0,) * len(self.tables.tensors)
        if k or self.config.vpp == 1:
            return [none] * len(slots)
        owners = zip(slots, self.owners(k, spots), strict=True)
        return [self.epilogues.placer.terms(*spot).send_ns[slot] for slot, spot in owners]

    def _sends_ns(self, k: int, before: Spots, spots: Spots) -> list[tuple[int, ...]]:
        """[R, K] messages between stages k - 1 and k on these nodes; 0 before the first."""
        if not k:
            return [(0,) * len(self.tables.tensors)] * len(self.lanes)
        sources, targets = self.owners(k - 1, before), self.owners(k, spots)
        groups, into = [spot.group for spot in sources], [spot.group for spot in targets]
        width = self.config.dp // len(self.lanes) if self.apart else self.width
        crossing = self.epilogues.placer.zones.sends_ns(groups, into, width)
        slots = ((k - 1) * self.config.dp + r for r in self.lanes)
        legs = map(self._leg_ns, slots, sources, targets)
        return [tuple(map(max, *times)) for times in zip(legs, crossing, strict=True)]

    def _sends_back(self, k: int, pairs: Sequence[tuple[Spots, Spots]]) -> Array | None:
        """[A, R] messages from stage k to the one before; None: as from there."""
        return None

    def _leg_ns(self, slot: int, source: Spot, target: Spot) -> tuple[int, ...]:
        """[K] messages from this slot to that of the next stage, as links of both nodes allow."""
        terms = self.epilogues.placer.terms
        return tuple(map(max, *(terms(*spot).send_ns[slot] for spot in (source, target))))

    def _tail_row(self, k: int, spots: Spots) -> int:
        """Row of `epilogues` of a stage on these nodes."""
        return self.epilogues.row(k, spots)


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

    def _placed(self, k: int, used: Used, before: Spots) -> Iterator[tuple[Used, Spots]]:
        if self.number == 1:
            yield from super()._placed(k, used, before)
            return
        last = k + 1 == self.config.pp
        for j, more in self._nodes(used):
            light = last and any(map(int.__lt__, more, self.least))
            if j in (self.hosts[k] or (j,)) and not light:
                yield more, (Spot(j, k * self.config.dp),)

    def _leg_ns(self, slot: int, source: Spot, target: Spot) -> tuple[int, ...]:
        if not self.unlike:
            return super()._leg_ns(slot, source, target)
        tables, groups = self.tables, self.instance.cluster.groups
        ends = [(spot.group, groups[spot.group].inter_node) for spot in (source, target)]
        sends = (
            max(outside_ns(tables, j, self.width, link, n) for j, link in ends)
            for n in tables.tensors
        )
        together = self.sizes[source.group] >= self.config.dp + self.width
        if not (together and source.group == target.group):
            return tuple(sends)
        inside = (inside_ns(tables, source.group, n) for n in tables.tensors)
        return tuple(map(min, sends, inside))

    @cached_property
    def _least_rows(self) -> dict[int, int]:
        """By group used the row of tails with a node of it at least, which wait for no others."""
        costs, runs = LeastCosts(self.instance, self.config), self.instance.workload.layer_runs
        layers, start = costs.tail_ns()
        each = np.repeat(layers, [run.count for run in runs], axis=0)
        tails = [interval_sums(per_layer) + start for per_layer in each.T]
        rows = [self.epilogues.add(all_ns, all_ns, 0) for all_ns in tails]
        return dict(zip(costs.config.groups_used, rows, strict=True))

    def _tail_row(self, k: int, spots: Spots) -> int:
        if self.number == 1:
            return super()._tail_row(k, spots)
        (spot,) = spots
        if self.unlike:
            return self._least_rows[spot.group]
        others = [Spot(j, spot.start) for j in self.hosts[k] or ()]
        return super()._tail_row(k, (*others, *spots * (self.number - len(others))))
