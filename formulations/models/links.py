"""What a free node order makes of links: rings over nodes, and what crosses between zones.

Constraints (17) and (19) to (21) of `node_order`.
Variables, literals, where nodes stand in several zones y, z. crosses[s, t, y, z];
flows[k, y, z, n], visits[k, y], joins[k, y, z], rings[y, z, n], lanes[y, z, n], n >= 0 a number of
replicas or stages.
(17) inside[k] >= the ring inside the node that covers each slot of stage k; outside[k] >= the ring
     between N nodes at that node's rate, if span[k, N], and at the rate of n rings between zones if
     joins[k, y, z] and rings[y, z, n]. Bytes and start-up are apart: each is the largest over the
     nodes.
(19) crosses[s, s + dp, y, z] if groups of y and z own the slots; exactly one flows[k, y, z, n],
     with sum of n flows[k, y, z, n] >= sum over the slots of k of crosses.
(20) visits[k, y] if and only if a group of y owns a slot of k. joins[k, y, z] if k visits both,
     between which its ring may pass. Exactly one rings[y, z, n], with sum of n rings[y, z, n]
     >= sum over k of joins.
(21) lanes[y, z, n] as flows in (19), for slots r and (p - 1) dp + r in y and z or z and y.
Every count is at least what it counts. Costs grow with it, so that minimisation makes it equal.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any

from formulations.costs.placement import Placer, SyncPhase
from formulations.costs.sharding import lanes_like, layers_alike
from formulations.costs.tables import Array, CostTables
from formulations.costs.transfers import Pair, RingRate, ZoneTerms
from formulations.decisions import Start
from formulations.models.layer_to_stage import Split
from formulations.models.model import (
    Choice,
    Costs,
    Linear,
    Literal,
    Model,
    Term,
    of_numbers,
    total_of,
    weighted,
)
from formulations.plan import Configuration

Owners = Sequence[Sequence[tuple[int, Literal]]]  #: per slot, groups and whether they own it


def stage_slots(config: Configuration, stage: int) -> range:
    """Slots of a stage."""
    return range(stage * config.dp, (stage + 1) * config.dp)


class ZoneVariables:
    """Flows, rings and lanes between zones."""

    def __init__(self, model: Model, tables: CostTables, owners: Owners) -> None:
        self.model, self.terms, self.config = model, ZoneTerms(tables), tables.config
        self.owners = owners
        self.zone = self.terms.zone_of_group
        used = {self.zone[j] for j in self.config.groups_used}
        self.pairs = list(combinations(sorted(used), 2))
        self._inside = lru_cache(maxsize=None)(self._new_inside)
        self._flows = lru_cache(maxsize=None)(self._new_flows)
        self._visits = lru_cache(maxsize=None)(self._new_visits)
        self._joins = lru_cache(maxsize=None)(self._new_joins)
        self._rings = lru_cache(maxsize=None)(self._new_rings)

    def _new_inside(self, slot: int, zone: int) -> Literal:
        """Whether a slot lies in a zone: one group at most owns it."""
        owners = [literal for j, literal in self.owners[slot] if self.zone[j] == zone]
        literals = [literal for literal in owners if isinstance(literal, Linear)]
        if len(literals) < len(owners):
            return 1  # the only group that may own it
        return self.model.joined(19, literals, f"inside_{slot}_{zone}") if literals else 0

    def _count(
        self, number: int, literals: Sequence[Literal], name: str
    ) -> list[tuple[Literal, int]]:
        """Numbers, and whether at least so many of the literals hold, for one number."""
        possible = [literal for literal in literals if not isinstance(literal, int) or literal]
        if not possible:
            return [(1, 0)]
        counts = {n: self.model.literal(f"{name}_{n}") for n in range(len(possible) + 1)}
        self.model.exactly_one(number, counts.values())
        self.model.at_most(number, total_of(*possible), weighted(counts, counts.values()))
        return [(literal, n) for n, literal in counts.items()]

    def _crosses(
        self, number: int, first: int, second: int, pairs: Iterable[Pair], name: str
    ) -> Literal:
        """Whether two slots lie in one of the pairs of zones; 0 if they never do."""
        ends = [(self._inside(first, y), self._inside(second, z)) for y, z in pairs]
        possible = [
            end
            for end in ends
            if not any(isinstance(literal, int) and not literal for literal in end)
        ]
        if not possible:
            return 0
        crosses = self.model.literal(name)
        for end in possible:
            self.model.some_of(number, [crosses], *end)
        return crosses

    def _new_flows(self, stage: int, pair: Pair) -> list[tuple[Literal, int]]:
        """(19) Replicas that go from zone to zone after a stage."""
        config, crossing = self.config, []
        for s in stage_slots(config, stage):
            name = f"crosses_{s}_{pair[0]}_{pair[1]}"
            crossing.append(self._crosses(19, s, (s + config.dp) % config.slots, [pair], name))
        return self._count(19, crossing, f"flows_{stage}_{pair[0]}_{pair[1]}")

    def sends(self, slot: int) -> Iterator[Choice]:
        """(15) Ends of messages to the next stage; numbers of flows, and messages [K] then, ns."""
        nothing = (0,) * len(self.terms.tables.tensors)
        for i, source in self.owners[slot]:
            for j, target in self.owners[(slot + self.config.dp) % self.config.slots]:
                if self.zone[i] != self.zone[j]:
                    flows = self._flows(slot // self.config.dp, (self.zone[i], self.zone[j]))
                    times = [(b, self.terms.send_ns(i, j, n) if n else nothing) for b, n in flows]
                    yield (source, target), times

    def _new_visits(self, stage: int, zone: int) -> Literal:
        """Whether a stage has slots in a zone."""
        inside = [self._inside(s, zone) for s in stage_slots(self.config, stage)]
        if all(isinstance(literal, int) for literal in inside):
            return int(1 in inside)
        visits = self.model.literal(f"visits_{stage}_{zone}")
        for literal in inside:
            self.model.implies(20, literal, visits)
        self.model.some_of(20, inside, visits)
        return visits

    def _new_joins(self, stage: int, pair: Pair) -> Literal:
        """(20) Whether a stage's ring may pass between two zones: it visits both."""
        joins = self.model.literal(f"joins_{stage}_{pair[0]}_{pair[1]}")
        self.model.some_of(20, [joins], *(self._visits(stage, zone) for zone in pair))
        return joins

    def _new_rings(self, pair: Pair) -> list[tuple[Literal, int]]:
        """(20) Stages whose rings share the link between two zones."""
        joining = [self._joins(k, pair) for k in range(self.config.pp)]
        return self._count(20, joining, f"rings_{pair[0]}_{pair[1]}")

    def ring_rates(self, stage: int) -> Iterator[Choice]:
        """(17) Whether a stage's ring passes between two zones, and the rates there."""
        for pair in self.pairs:
            rates = [(b, self.terms.ring_rate(pair, n)) for b, n in self._rings(pair)]
            yield (self._joins(stage, pair),), rates

    def ring_latencies(self, stage: int) -> Iterator[Choice]:
        """(17) Whether a stage's ring passes between two zones, and the latency there."""
        for pair in self.pairs:
            yield (self._joins(stage, pair),), [(1, self.terms.link(pair).latency_s)]

    def embeddings(self) -> Iterator[Choice]:
        """(18), (21) Numbers of lanes, and times that the tied matrix takes then at least, ns."""
        last = (self.config.pp - 1) * self.config.dp
        for y, z in self.pairs:
            crossing = [
                self._crosses(21, r, last + r, [(y, z), (z, y)], f"crosses_tied_{r}_{y}_{z}")
                for r in range(self.config.dp)
            ]
            lanes = self._count(21, crossing, f"lanes_{y}_{z}")
            yield (), [(b, self.terms.embedding_ns((y, z), n) if n else 0) for b, n in lanes]


class RingTimes:
    """Rings of every stage.

    covering: [slot] starts that cover it, and whether they do. spans: per stage whether it lies on
    so many nodes.
    """

    def __init__(
        self,
        model: Model,
        placer: Placer,
        covering: Sequence[Sequence[tuple[Literal, Start]]],
        spans: Sequence[Mapping[int, Literal]],
        zones: ZoneVariables,
    ) -> None:
        self.model, self.placer, self.tables = model, placer, placer.tables
        self._covering, self._spans, self._zones = covering, spans, zones

    def phase(self, phase: SyncPhase, stage: int, split: Split, name: str) -> Term:
        """Sync or gather of a stage, ns: the slowest rings for layers of each kind."""
        parts = self._start_up(phase, stage, name)
        for i, layers in enumerate(layers_alike(self.tables.config, self.tables.gradient_bytes)):
            place = f"{stage}_{i}" if i else f"{stage}"
            parts += self._bytes(phase, stage, split, layers, name, place)
        return total_of(*parts)

    def _slowest(
        self,
        stage: int,
        of_node: Callable[[Start, Any], Any],
        costs_of: Callable[[set[Any]], Costs[Any]],
        name: str,
        between: Iterable[Choice] | None = None,
    ) -> Term:
        """(17) The largest cost of the nodes of a stage.

        between: the same of zones that its ring passes; costs are then of pairs with the number of
        its nodes.
        """
        choices: list[Choice] = []
        for slot in stage_slots(self.tables.config, stage):
            starts = self._covering[slot]
            nodes = [(holds, of_node(key, self.placer.terms(*key))) for holds, key in starts]
            choices.append(((), nodes))
        choices += between or ()
        costs = costs_of({term for _, options in choices for _, term in options})
        seconds = None if between is None else self._spans[stage]
        return self.model.largest(17, costs, choices, name, seconds)

    def _start_up(self, phase: SyncPhase, stage: int, name: str) -> list[Term]:
        """Latencies of the rings inside and between the nodes."""
        groups, spans = self.tables.instance.cluster.groups, self._spans[stage]
        return [
            self._slowest(
                stage,
                lambda _, node: phase.rings(node).latency_s[stage],
                lambda all_s: of_numbers({s: phase.latency_ns(s, 1, 0.0) for s in all_s}),
                f"{name}_inside_start_{stage}",
            ),
            self._slowest(
                stage,
                lambda key, _: groups[key[0]].inter_node.latency_s,
                lambda all_s: of_numbers(
                    {(s, n): phase.latency_ns(0.0, n, s) for s in all_s for n in spans}
                ),
                f"{name}_outside_start_{stage}",
                self._zones.ring_latencies(stage),
            ),
        ]

    def _bytes(
        self, phase: SyncPhase, stage: int, split: Split, layers: Array, name: str, place: str
    ) -> list[Term]:
        """Bytes of some layers [L] inside and between the nodes."""
        config, spans = self.tables.config, self._spans[stage]
        stages = config.stages_of(stage)
        return [
            self._slowest(
                stage,
                lambda _, node: phase.rings(node).inside[stage],
                lambda rates: split.of_layers(
                    stages, {rate: phase.inside_ns(rate) * layers for rate in rates}
                ),
                f"{name}_inside_{place}",
            ),
            self._slowest(
                stage,
                lambda key, node: phase.rings(node).outside.get(
                    stage, RingRate(0.0, lanes_like(config, key[0]))
                ),
                lambda rates: split.of_layers(
                    stages, {(r, n): phase.outside_ns(r, n) * layers for r in rates for n in spans}
                ),
                f"{name}_outside_{place}",
                self._zones.ring_rates(stage),
            ),
        ]
