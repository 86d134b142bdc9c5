"""Which node takes which position of a new fleet, so that little has to be moved."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil

import numpy as np

from formulations.fleet import Pipeline, holdings, layers_by_position
from formulations.template import Template
from formulations.transition import Copy, Links, missing
from solver.fleets.assignment import FORBIDDEN, Array, cheapest, least_largest
from solver.fleets.sources import chosen_sources


@dataclass(frozen=True)
class Situation:
    """What is left of a fleet. groups: node group of every node of the cluster.

    old: pipelines before the failure, with lost nodes. ready: nodes to use, those that joined
    included. layer_bytes: state of every layer.
    """

    links: Links
    groups: tuple[int, ...]
    old: tuple[Pipeline, ...]
    ready: tuple[int, ...]
    layer_bytes: tuple[int, ...]

    @cached_property
    def held(self) -> dict[int, range]:
        """Layers on the nodes that are ready."""
        ready = set(self.ready)
        return {node: layers for node, layers in holdings(self.old).items() if node in ready}

    @cached_property
    def former(self) -> dict[int, int]:
        """Old pipeline of every node that was in one."""
        return {node: p for p, pipeline in enumerate(self.old) for node in pipeline.nodes}


@dataclass(frozen=True)
class Seating:
    """Nodes of every new pipeline, the copies that this takes, and their time."""

    nodes: tuple[tuple[int, ...], ...]
    copies: tuple[Copy, ...]
    transfer_ns: int


#: Positions above which only fewest bytes are asked for, not the fastest to receive.
LARGE = 200


class Seats:
    """The positions of new pipelines and what each node would have to receive for them."""

    def __init__(self, situation: Situation, templates: Sequence[Template]) -> None:
        self._situation = situation
        self._templates = templates
        held = situation.held
        self._own = [held.get(node, range(0)) for node in situation.ready]
        self._places = [
            (q, group, layers)
            for q, template in enumerate(templates)
            for group, layers in zip(
                template.node_groups, layers_by_position(template), strict=True
            )
        ]
        self._before = [0, *accumulate(situation.layer_bytes)]

    @cached_property
    def _partner_of(self) -> list[int | None]:
        return self._partners()

    def _missing_bytes(self, rows: Sequence[int], columns: Sequence[int]) -> Array:
        """Bytes to receive for some positions on some ready nodes; FORBIDDEN in other groups."""
        groups = self._situation.groups
        found = np.full((len(rows), len(columns)), FORBIDDEN, dtype=np.int64)
        for r, row in enumerate(rows):
            _, group, layers = self._places[row]
            for c, column in enumerate(columns):
                if groups[self._situation.ready[column]] == group:
                    found[r, c] = self._lacking(layers, self._own[column])
        return found

    def _lacking(self, layers: range, have: range) -> int:
        start, end = max(layers.start, have.start), min(layers.stop, have.stop)
        present = self._before[end] - self._before[start] if start < end else 0
        return self._before[layers.stop] - self._before[layers.start] - present

    @cached_property
    def _all_bytes(self) -> Array:
        """[positions, ready nodes] as `_missing_bytes`."""
        return self._missing_bytes(range(len(self._places)), range(len(self._own)))

    @cached_property
    def _all_times(self) -> Array:
        """[positions, ready nodes] ns on the node's own link, rounded up."""
        times, links = self._all_bytes.copy(), self._situation.links
        for column, node in enumerate(self._situation.ready):
            sizes, back = np.unique(times[:, column], return_inverse=True)
            each = [s if s == FORBIDDEN else ceil(links.node_ns(node, int(s))) for s in sizes]
            times[:, column] = np.array(each, dtype=np.int64)[back]
        return times

    @cached_property
    def least_receiving_ns(self) -> int:
        """No way to seat the nodes receives faster; 0 for large fleets, where it takes long.

        Proof. Each node receives all that it lacks over its own link; the slowest of them is
        least in `least_largest`. The transfer is no shorter than the slowest link, rounded up, and
        begins with the latency unless nothing has to be received.
        """
        if len(self._places) > LARGE:
            return 0
        least = self._least_largest_ns
        return least + self._situation.links.latency_ns if least else 0

    @cached_property
    def _least_largest_ns(self) -> int:
        """As `least_receiving_ns`, for fleets of any size and without latency."""
        least = least_largest(self._all_times)
        assert least is not None
        return least

    def seated(self) -> Seating:
        """A good way to seat the nodes, of which there must be enough in every group.

        Fewest bytes of all, and fewest among the ways that are fastest to receive: the one that is
        faster with its sources. Ties stay with the pipeline that a node was in.
        """
        found = [self._seating(self._with_fewest_bytes())]
        if len(self._places) <= LARGE:
            fast = self._all_times <= self._least_largest_ns
            costs = np.where(fast, self._all_bytes, FORBIDDEN)
            every = range(len(self._places))
            found.append(self._seating(self._cheapest(costs, every, range(len(self._own)))))
        return min(found, key=lambda seating: seating.transfer_ns)

    def _with_fewest_bytes(self) -> list[int]:
        """A column for every position, with the least sum of bytes.

        Positions take nodes that hold just their layers, as many as there are. Proof that some
        least sum does so. Let v hold just the layers R of position P, but take Q with layers S,
        while w takes P. With v on P and w on Q nothing is received for P, and for Q what S has
        beyond w's layers W. That is no more than what S has beyond R plus what R has beyond W,
        which v and w received before. All four are of one node group.
        """
        chosen = self._same_layers()
        rows = [row for row in range(len(self._places)) if row not in chosen]
        taken = set(chosen.values())
        columns = [column for column in range(len(self._own)) if column not in taken]
        rest = self._cheapest(self._missing_bytes(rows, columns), rows, columns)
        chosen |= dict(zip(rows, rest, strict=True))
        return [chosen[row] for row in range(len(self._places))]

    def _same_layers(self) -> dict[int, int]:
        """Columns of nodes that hold just a position's layers, those of its partner first."""
        situation, former = self._situation, self._situation.former
        pools: dict[tuple[int, range], list[int]] = {}
        for column, (node, own) in enumerate(zip(situation.ready, self._own, strict=True)):
            pools.setdefault((situation.groups[node], own), []).append(column)
        chosen = dict[int, int]()
        for only_partner in (True, False):
            for row, (q, group, layers) in enumerate(self._places):
                pool = pools.get((group, layers), [])
                for column in pool if row not in chosen else ():
                    home = former.get(situation.ready[column])
                    if not only_partner or home == self._partner_of[q]:
                        chosen[row] = column
                        pool.remove(column)
                        break
        return chosen

    def _cheapest(self, costs: Array, rows: Sequence[int], columns: Sequence[int]) -> list[int]:
        """Columns for rows: bytes first; of equal ones one that stays with its pipeline."""
        former = self._situation.former
        homes = [former.get(self._situation.ready[column]) for column in columns]
        moves = [[home != self._partner_of[self._places[row][0]] for home in homes] for row in rows]
        extra = np.array(moves, dtype=np.int64).reshape(costs.shape)
        found = cheapest(np.where(costs == FORBIDDEN, FORBIDDEN, costs * (len(rows) + 1) + extra))
        assert found is not None
        return [columns[column] for column in found]

    def _seating(self, chosen: Sequence[int]) -> Seating:
        situation = self._situation
        seats = iter(situation.ready[column] for column in chosen)
        nodes = tuple(tuple(next(seats) for _ in one.node_groups) for one in self._templates)
        fleet = [Pipeline(t, own, 1) for t, own in zip(self._templates, nodes, strict=True)]
        wanted = list(missing(situation.held, fleet))
        copies = chosen_sources(situation.links, situation.held, wanted, situation.layer_bytes)
        time_ns = situation.links.transfer_ns(copies, situation.layer_bytes)
        return Seating(nodes, copies, time_ns)

    def _partners(self) -> list[int | None]:
        """For every new pipeline an old one that it goes on from: equal, then of similar size."""
        alive = Counter(self._situation.former[node] for node in self._situation.held)
        gaps = [
            [self._gap(template, p, alive[p]) for p in range(len(self._situation.old))]
            + [1 << 20] * len(self._templates)
            for template in self._templates
        ]
        chosen = cheapest(np.array(gaps, dtype=np.int64))
        assert chosen is not None
        return [int(p) if p < len(self._situation.old) else None for p in chosen]

    def _gap(self, template: Template, p: int, alive: int) -> int:
        old = self._situation.old[p].template
        whole = alive == old.num_nodes
        return 0 if whole and old == template else 1 + abs(template.num_nodes - alive)
