"""What a free node order makes of the links between zones: constraints (19)-(21) of `node_order`.

Variables, literals, where nodes stand in several zones y, z. crosses[s, t, y, z];
flows[k, y, z, n], visits[k, y], joins[k, y, z], rings[y, z, n], lanes[y, z, n], n >= 0 a number of
replicas or stages.
(19) crosses[s, s + dp, y, z] if groups of y and z own the slots; exactly one flows[k, y, z, n],
     with sum of n flows[k, y, z, n] >= sum over the slots of k of crosses.
(20) visits[k, y] if and only if a group of y owns a slot of k. joins[k, y, z] if k visits both,
     between which its ring may pass. Exactly one rings[y, z, n], with sum of n rings[y, z, n]
     >= sum over k of joins.
(21) lanes[y, z, n] as flows in (19), for slots r and (p - 1) dp + r in y and z or z and y.
Every count is at least what it counts. Costs grow with it, so that minimisation makes it equal.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations

from formulations.costs.tables import CostTables
from formulations.costs.transfers import Pair, ZoneTerms
from formulations.models.model import Choice, Linear, Literal, Model, total_of, weighted
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
