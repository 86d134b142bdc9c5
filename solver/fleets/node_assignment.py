"""Which node takes which position of a new fleet, and who sends it what it lacks.

Positions are rows and nodes columns of assignment problems: of least cost, and of least largest
cost.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import ceil
from typing import NamedTuple

import numpy as np

from formulations.costs.intervals import Array
from formulations.fleet import Pipeline, Template, holdings, layers_by_position
from formulations.instance import Instance
from formulations.transition import Copy, Links, layer_state_bytes, missing

#: Cost of what is not allowed.
FORBIDDEN = -1

#: Positions above which only fewest bytes are asked for, not the fastest to receive.
LARGE = 200


def cheapest(costs: Array) -> Array | None:
    """[rows] a column for every row, all different, with the least sum; None if there is none.

    costs: [rows, columns] >= 0, or FORBIDDEN; rows <= columns. Shortest augmenting paths with
    potentials (Kuhn 1955; Jonker and Volgenant 1987), O(rows^2 columns).
    """
    rows, columns = costs.shape
    if rows > columns:
        return None
    highest = int(costs.max(initial=0)) + 1
    finite = np.where(costs == FORBIDDEN, highest * (rows + 1), costs)
    row_price = np.zeros(rows + 1, dtype=np.int64)
    column_price = np.zeros(columns + 1, dtype=np.int64)
    owner = np.zeros(columns + 1, dtype=np.int64)  # row of a column, from 1; 0: free
    far = np.iinfo(np.int64).max
    for row in range(1, rows + 1):
        # Dijkstra by reduced costs from the row, over columns and the rows that own them, to a free
        # column; column 0 stands for none.
        distance = np.full(columns + 1, far)
        previous = np.zeros(columns + 1, dtype=np.int64)
        done = np.zeros(columns + 1, dtype=bool)
        owner[0], column = row, 0
        while owner[column]:
            done[column] = True
            current = owner[column]
            reduced = finite[current - 1] - row_price[current] - column_price[1:]
            nearer = ~done[1:] & (reduced < distance[1:])
            distance[1:][nearer] = reduced[nearer]
            previous[1:][nearer] = column
            following = int(np.where(done[1:], far, distance[1:]).argmin()) + 1
            delta = distance[following]
            row_price[owner[done]] += delta
            column_price[done] -= delta
            distance[~done] -= delta
            column = following
        while column:  # every column on the path goes to the row before it
            before = int(previous[column])
            owner[column] = owner[before]
            column = before
    chosen = np.zeros(rows, dtype=np.int64)
    taken = np.flatnonzero(owner[1:])
    chosen[owner[1:][taken] - 1] = taken
    return None if (costs[np.arange(rows), chosen] == FORBIDDEN).any() else chosen


def least_largest(costs: Array) -> int | None:
    """Least possible largest cost of a column for every row; None if no assignment is allowed.

    By bisection: costs up to a level do if every row can have a column of its own (augmenting
    paths, Kuhn 1955).
    """
    levels = np.unique(costs[costs != FORBIDDEN])

    def is_enough(level: int) -> bool:
        columns = [np.flatnonzero(row).tolist() for row in (costs != FORBIDDEN) & (costs <= level)]
        owner: dict[int, int] = {}

        def placed(row: int, tried: set[int]) -> bool:
            for column in columns[row]:
                if column not in tried:
                    tried.add(column)
                    if column not in owner or placed(owner[column], tried):
                        owner[column] = row
                        return True
            return False

        return all(placed(row, set()) for row in range(len(columns)))

    index = bisect_left(levels, True, key=is_enough)
    return int(levels[index]) if index < len(levels) else None


@dataclass(frozen=True)
class Situation:
    """What is left of a fleet. groups: node group of every node of the cluster.

    before: pipelines before the failure, with lost nodes. ready: nodes to use, those that joined
    included. layer_bytes: state of every layer.
    """

    links: Links
    groups: tuple[int, ...]
    before: tuple[Pipeline, ...]
    ready: tuple[int, ...]
    layer_bytes: tuple[int, ...]

    @classmethod
    def of(
        cls, instance: Instance, before: Iterable[Pipeline], ready: Iterable[int]
    ) -> "Situation":
        """What these nodes are of an instance whose pipelines were such."""
        groups, layer_bytes = instance.cluster.node_groups, layer_state_bytes(instance.workload)
        return cls(Links(instance.cluster), groups, tuple(before), tuple(ready), layer_bytes)

    @cached_property
    def holdings(self) -> dict[int, range]:
        """Layers on the nodes that are ready."""
        ready = set(self.ready)
        return {node: layers for node, layers in holdings(self.before).items() if node in ready}

    @cached_property
    def former(self) -> dict[int, int]:
        """Pipeline before of every node that was in one."""
        return {node: p for p, pipeline in enumerate(self.before) for node in pipeline.nodes}


@dataclass(frozen=True)
class NodeAssignment:
    """Nodes of every new pipeline, the copies that this takes, and their time."""

    nodes: tuple[tuple[int, ...], ...]
    copies: tuple[Copy, ...]
    transfer_ns: int


class _Position(NamedTuple):
    """A position of a new pipeline, which a node of the group may take to hold the layers."""

    pipeline: int
    group: int
    layers: range


class NodeAssigner:
    """The positions of new pipelines, for the nodes that are ready.

    In tables positions are rows, nodes that are ready columns; FORBIDDEN for nodes of other groups.
    """

    def __init__(self, situation: Situation, templates: Sequence[Template]) -> None:
        self._situation, self._templates = situation, templates
        self._positions = list[_Position]()
        for q, template in enumerate(templates):
            pairs = zip(template.node_groups, layers_by_position(template), strict=True)
            self._positions += [_Position(q, *pair) for pair in pairs]

    @cached_property
    def _all_bytes(self) -> Array:
        """[positions, nodes] bytes to receive."""
        situation, before = self._situation, [0, *accumulate(self._situation.layer_bytes)]
        have_layers = [situation.holdings.get(node, range(0)) for node in situation.ready]
        lacking = np.full((len(self._positions), len(have_layers)), FORBIDDEN, dtype=np.int64)
        for row, (_, group, layers) in enumerate(self._positions):
            for column, (node, have) in enumerate(zip(situation.ready, have_layers, strict=True)):
                if situation.groups[node] == group:
                    start, end = max(layers.start, have.start), min(layers.stop, have.stop)
                    present = before[end] - before[start] if start < end else 0
                    lacking[row, column] = before[layers.stop] - before[layers.start] - present
        return lacking

    @cached_property
    def _all_ns(self) -> Array:
        """[positions, nodes] ns on the node's own link, rounded up."""
        times, links = self._all_bytes.copy(), self._situation.links
        for column, node in enumerate(self._situation.ready):
            sizes, back = np.unique(times[:, column], return_inverse=True)
            each = [s if s == FORBIDDEN else ceil(links.node_ns(node, int(s))) for s in sizes]
            times[:, column] = np.array(each, dtype=np.int64)[back]
        return times

    @cached_property
    def _least_ns(self) -> int:
        """No assignment of the nodes receives faster, latency apart.

        Proof. Each node receives all that it lacks over its own link; the slowest of them is
        least in `least_largest`. The transfer is no shorter than the slowest link, rounded up.
        """
        slowest_ns = least_largest(self._all_ns)
        assert slowest_ns is not None
        return slowest_ns

    @cached_property
    def _partner_of(self) -> list[int | None]:
        """For every new pipeline the one that it goes on from: equal, then of similar size."""
        situation, fresh = self._situation, [1 << 20] * len(self._templates)
        alive = Counter(situation.former[node] for node in situation.holdings)

        def distance(template: Template, p: int) -> int:
            before = situation.before[p].template
            is_same = template == before and alive[p] == before.num_nodes
            return 0 if is_same else 1 + abs(template.num_nodes - alive[p])

        number = len(situation.before)
        costs = [[*(distance(t, p) for p in range(number)), *fresh] for t in self._templates]
        chosen = cheapest(np.array(costs, dtype=np.int64))
        assert chosen is not None
        return [int(p) if p < number else None for p in chosen]

    @cached_property
    def least_receiving_ns(self) -> int:
        """No assignment of the nodes receives faster; 0 for large fleets, where it takes long.

        The transfer begins with the latency unless nothing has to be received.
        """
        if len(self._positions) > LARGE:
            return 0
        return self._least_ns + self._situation.links.latency_ns if self._least_ns else 0

    def best(self) -> NodeAssignment:
        """A good assignment of the nodes, of which there must be enough in every group.

        Fewest bytes of all, and fewest among the assignments that are fastest to receive: the one
        that is faster with its sources. Ties stay with the pipeline that a node was in.
        """
        assignments = [self._with_copies(self._cheapest(self._all_bytes))]
        if len(self._positions) <= LARGE:
            fast = self._all_ns <= self._least_ns
            costs = np.where(fast, self._all_bytes, FORBIDDEN)
            assignments.append(self._with_copies(self._cheapest(costs)))
        return min(assignments, key=lambda assignment: assignment.transfer_ns)

    def _cheapest(self, costs: Array) -> list[int]:
        """A column for every position: bytes first; of equal ones nodes that stay in a pipeline."""
        former = self._situation.former
        homes = [former.get(node) for node in self._situation.ready]
        partners = [self._partner_of[position.pipeline] for position in self._positions]
        moves = [[home != partner for home in homes] for partner in partners]
        extra = np.array(moves, dtype=np.int64).reshape(costs.shape)
        chosen = cheapest(np.where(costs == FORBIDDEN, FORBIDDEN, costs * (len(costs) + 1) + extra))
        assert chosen is not None
        return [int(column) for column in chosen]

    def _with_copies(self, chosen: Sequence[int]) -> NodeAssignment:
        situation = self._situation
        ready = iter(situation.ready[column] for column in chosen)
        nodes = tuple(tuple(next(ready) for _ in t.node_groups) for t in self._templates)
        fleet = [Pipeline(*pair, 1) for pair in zip(self._templates, nodes, strict=True)]
        wanted = list(missing(situation.holdings, fleet))
        copies = chosen_sources(situation.links, situation.holdings, wanted, situation.layer_bytes)
        time_ns = situation.links.transfer_ns(copies, situation.layer_bytes)
        return NodeAssignment(nodes, copies, time_ns)


def chosen_sources(
    links: Links,
    holders: dict[int, range],
    wanted: Iterable[tuple[int, int]],
    layer_bytes: Sequence[int],
) -> tuple[Copy, ...]:
    """A copy for every wanted (node, layer); source None exactly where no node holds the layer.

    holders: layers on every node that may send. Layers with few of them come first. Up to the time
    that the slowest node receives for in any case, a node that sends to the target already goes on
    to do so; beyond, each takes the holder whose links are then least busy.
    """
    sources: dict[int, list[int]] = defaultdict(list)
    for node, layers in sorted(holders.items()):
        for layer in layers:
            sources[layer].append(node)
    order = sorted(wanted, key=lambda w: (len(sources[w[1]]), -layer_bytes[w[1]], w))
    received = links.loads_ns((Copy(layer, None, node) for node, layer in order), layer_bytes)
    slowest = max(received.values(), default=Fraction(0))
    busy: dict[tuple[str, int, int], Fraction] = defaultdict(Fraction)  # links that sources decide
    sending = set[tuple[int | None, int]]()
    copies = list[Copy]()

    def uses(copy: Copy) -> dict[tuple[str, int, int], Fraction]:
        loads = links.loads_ns([copy], layer_bytes)
        return {link: time for link, time in loads.items() if link[0] != "in"}

    def rank(copy: Copy) -> tuple[Fraction, bool, Fraction]:
        done = max(busy[link] + time for link, time in uses(copy).items())
        return max(done, slowest), (copy.source, copy.target) not in sending, done

    for node, layer in order:
        options = [Copy(layer, source, node) for source in sources[layer]]
        copy = min(options, key=rank) if options else Copy(layer, None, node)
        for link, time in uses(copy).items():
            busy[link] += time
        sending.add((copy.source, node))
        copies.append(copy)
    return tuple(sorted(copies, key=lambda copy: (copy.target, copy.layer)))
