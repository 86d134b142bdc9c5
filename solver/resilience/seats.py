"""Which node takes which position of a new fleet, so that little has to be moved."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formulations.fleet import Pipeline, holdings, layers_by_position
from formulations.template import Template
from formulations.transition import Copy, Links, missing
from solver.resilience.assignment import FORBIDDEN, Array, cheapest, least_largest
from solver.resilience.sources import chosen_sources


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

    @property
    def held(self) -> dict[int, range]:
        """Layers on the nodes that are ready."""
        return {node: layers for node, layers in holdings(self.old).items() if node in self.ready}

    @property
    def former(self) -> dict[int, int]:
        """Old pipeline of every node that was in one."""
        return {node: p for p, pipeline in enumerate(self.old) for node in pipeline.nodes}


@dataclass(frozen=True)
class Seating:
    """Nodes of every new pipeline, the copies that this takes, and their time."""

    nodes: tuple[tuple[int, ...], ...]
    copies: tuple[Copy, ...]
    transfer_ns: int


class Seats:
    """The positions of new pipelines and what each node would have to receive for them."""

    def __init__(self, situation: Situation, templates: Sequence[Template]) -> None:
        self._situation = situation
        self._templates = templates
        self._before = np.concatenate([[0], np.cumsum(situation.layer_bytes)])
        self._bytes = self._missing_bytes()
        times = [
            [
                self._node_ns(node, int(size))
                for node, size in zip(situation.ready, row, strict=True)
            ]
            for row in self._bytes
        ]
        self._times = np.array(times, dtype=np.int64).reshape(self._bytes.shape)

    def _node_ns(self, node: int, size_bytes: int) -> int:
        if size_bytes == FORBIDDEN:
            return FORBIDDEN
        return int(self._situation.links.node_ns(node, size_bytes))

    def _missing_bytes(self) -> Array:
        """[positions, ready nodes] bytes to receive, FORBIDDEN on nodes of another group."""
        situation, held, rows = self._situation, self._situation.held, list[list[int]]()
        own = [held.get(node, range(0)) for node in situation.ready]
        groups = [situation.groups[node] for node in situation.ready]
        for template in self._templates:
            for group, layers in zip(
                template.node_groups, layers_by_position(template), strict=True
            ):
                row = [self._lacking(layers, have) for have in own]
                rows.append(
                    [b if g == group else FORBIDDEN for b, g in zip(row, groups, strict=True)]
                )
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(own))

    def _lacking(self, layers: range, have: range) -> int:
        start, end = max(layers.start, have.start), min(layers.stop, have.stop)
        present = int(self._before[end] - self._before[start]) if start < end else 0
        return int(self._before[layers.stop] - self._before[layers.start]) - present

    def least_receiving_ns(self) -> int | None:
        """No way to seat the nodes receives faster; None if there is none.

        Proof. Each node receives all that it lacks over its own link; the slowest of them is
        least in `least_largest`. Times here are rounded down, and latency is left out.
        """
        return least_largest(self._times)

    def seated(self) -> Seating | None:
        """A good way to seat the nodes; None if there is none.

        Fewest bytes among the ways that are fastest to receive, and fewest bytes of all: the one
        that is faster with its sources. Ties stay with the pipeline that a node was in.
        """
        limit = least_largest(self._times)
        if limit is None:
            return None
        fast = np.where(self._times <= limit, self._bytes, FORBIDDEN)
        found = [self._seating(costs) for costs in (fast, self._bytes)]
        return min(found, key=lambda seating: seating.transfer_ns)

    def _seating(self, size_bytes: Array) -> Seating:
        situation = self._situation
        chosen = cheapest(self._with_ties(size_bytes))
        assert chosen is not None
        seats = iter(situation.ready[column] for column in chosen)
        nodes = tuple(tuple(next(seats) for _ in one.node_groups) for one in self._templates)
        fleet = [Pipeline(t, own, 1) for t, own in zip(self._templates, nodes, strict=True)]
        wanted = list(missing(situation.held, fleet))
        copies = chosen_sources(situation.links, situation.held, wanted, situation.layer_bytes)
        time_ns = situation.links.transfer_ns(copies, situation.layer_bytes)
        return Seating(nodes, copies, time_ns)

    def _with_ties(self, size_bytes: Array) -> Array:
        """Bytes first; of equal ones a node that stays with its pipeline's successor."""
        partners, former = self._partners(), self._situation.former
        rows = [
            [int(former.get(node, -1) != partner) for node in self._situation.ready]
            for partner, template in zip(partners, self._templates, strict=True)
            for _ in template.node_groups
        ]
        moves = np.array(rows, dtype=np.int64).reshape(size_bytes.shape)
        return np.where(size_bytes == FORBIDDEN, FORBIDDEN, size_bytes * (len(rows) + 1) + moves)

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
