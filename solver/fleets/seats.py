"""Which node takes which position of a new fleet, so that little has to be moved."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from formulations.fleet import Pipeline, layers_by_position
from formulations.template import Template
from formulations.transition import Copy, missing
from solver.fleets.assignment import FORBIDDEN, Array, cheapest
from solver.fleets.receiving import Place, Receiving
from solver.fleets.situation import Situation
from solver.fleets.sources import chosen_sources


@dataclass(frozen=True)
class Seating:
    """Nodes of every new pipeline, the copies that this takes, and their time."""

    nodes: tuple[tuple[int, ...], ...]
    copies: tuple[Copy, ...]
    transfer_ns: int


#: Positions above which only fewest bytes are asked for, not the fastest to receive.
LARGE = 200


class Seats:
    """The positions of new pipelines, for the nodes that are ready."""

    def __init__(self, situation: Situation, templates: Sequence[Template]) -> None:
        self._situation, self._templates = situation, templates
        self._places = [
            Place(q, group, layers)
            for q, template in enumerate(templates)
            for group, layers in zip(
                template.node_groups, layers_by_position(template), strict=True
            )
        ]
        self._receiving = Receiving(situation, self._places)

    @cached_property
    def _partner_of(self) -> list[int | None]:
        return self._situation.partners(self._templates)

    @cached_property
    def least_receiving_ns(self) -> int:
        """No way to seat the nodes receives faster; 0 for large fleets, where it takes long.

        The transfer begins with the latency unless nothing has to be received.
        """
        if len(self._places) > LARGE:
            return 0
        least = self._receiving.least_ns
        return least + self._situation.links.latency_ns if least else 0

    def seated(self) -> Seating:
        """A good way to seat the nodes, of which there must be enough in every group.

        Fewest bytes of all, and fewest among the ways that are fastest to receive: the one that is
        faster with its sources. Ties stay with the pipeline that a node was in.
        """
        found = [self._seating(self._with_fewest_bytes())]
        if len(self._places) <= LARGE:
            fast = self._receiving.all_ns <= self._receiving.least_ns
            costs = np.where(fast, self._receiving.all_bytes, FORBIDDEN)
            rows, columns = map(range, costs.shape)
            found.append(self._seating(self._cheapest(costs, rows, columns)))
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
        columns = [c for c in range(len(self._situation.ready)) if c not in taken]
        rest = self._cheapest(self._receiving.some_bytes(rows, columns), rows, columns)
        chosen |= dict(zip(rows, rest, strict=True))
        return [chosen[row] for row in range(len(self._places))]

    def _same_layers(self) -> dict[int, int]:
        """Columns of nodes that hold just a position's layers, those of its partner first."""
        situation, former = self._situation, self._situation.former
        pools: dict[tuple[int, range], list[int]] = {}
        for column, (node, own) in enumerate(
            zip(situation.ready, self._receiving.own, strict=True)
        ):
            pools.setdefault((situation.groups[node], own), []).append(column)
        chosen = dict[int, int]()
        for only_partner in (True, False):
            for row, place in enumerate(self._places):
                pool = pools.get((place.group, place.layers), [])
                for column in pool if row not in chosen else ():
                    home = former.get(situation.ready[column])
                    if not only_partner or home == self._partner_of[place.pipeline]:
                        chosen[row] = column
                        pool.remove(column)
                        break
        return chosen

    def _cheapest(self, costs: Array, rows: Sequence[int], columns: Sequence[int]) -> list[int]:
        """Columns for rows: bytes first; of equal ones one that stays with its pipeline."""
        former = self._situation.former
        homes = [former.get(self._situation.ready[column]) for column in columns]
        moves = [
            [home != self._partner_of[self._places[row].pipeline] for home in homes] for row in rows
        ]
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
