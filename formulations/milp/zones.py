"""What crosses between zones in a free node order: constraints (19) to (21) of `node_order`.

Every count is at least what it counts. Costs grow with it, so that minimisation makes it equal.
Nothing is added where all nodes used stand in one zone.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations

import pulp

from formulations.costs.tables import CostTables
from formulations.costs.transfers import Pair, RingRate, ZoneTerms
from formulations.milp.terms import (
    Linear,
    Literal,
    binary,
    require_at_most,
    require_equal,
    total_of,
    weighted,
)

Owners = Sequence[Sequence[tuple[int, Literal]]]  #: per slot, groups and whether they own it


class ZoneVariables:
    """Flows, rings and lanes between zones."""

    def __init__(self, model: pulp.LpProblem, tables: CostTables, owners: Owners) -> None:
        self.model = model
        self.terms = ZoneTerms(tables)
        self.shape = tables.shape
        self.owners = owners
        self.zone = self.terms.zone_of_group
        used = {self.zone[j] for j, count in enumerate(self.shape.nodes_used) if count}
        self.pairs = list(combinations(sorted(used), 2))
        self._flows = lru_cache(maxsize=None)(self._new_flows)
        self._visits = lru_cache(maxsize=None)(self._new_visits)
        self._joins = lru_cache(maxsize=None)(self._new_joins)
        self._rings = lru_cache(maxsize=None)(self._new_rings)
        self._lanes = lru_cache(maxsize=None)(self._new_lanes)

    def _stage(self, stage: int) -> range:
        return range(stage * self.shape.dp, (stage + 1) * self.shape.dp)

    def _inside(self, slot: int, zone: int) -> Literal:
        """Whether a slot lies in a zone: one group at most owns it."""
        return total_of(*(literal for j, literal in self.owners[slot] if self.zone[j] == zone))

    def _count(self, number: int, literals: Sequence[Literal], name: str) -> dict[int, Literal]:
        """Number -> whether at least so many of the literals hold, for one number."""
        known = [literal for literal in literals if not isinstance(literal, int) or literal]
        if not known:
            return {0: 1}
        counts: dict[int, Literal] = {
            n: binary(self.model, f"{name}_{n}") for n in range(len(known) + 1)
        }
        require_equal(self.model, number, total_of(*counts.values()), 1)
        counted = weighted(counts.keys(), counts.values())
        require_at_most(self.model, number, total_of(*known), counted)
        return counts

    def _crosses(self, number: int, first: int, second: int, pairs: Iterable[Pair]) -> Literal:
        """Whether two slots lie in one of the pairs of zones; 0 if they never do."""
        ends = [(self._inside(first, one), self._inside(second, two)) for one, two in pairs]
        possible = [total_of(*end) for end in ends if 0 not in map(_constant, end)]
        if not possible:
            return 0
        crosses = binary(self.model, f"crosses_{first}_{second}_{self.model.numConstraints()}")
        for both in possible:
            require_at_most(self.model, number, total_of(both, -1), crosses)
        return crosses

    def _new_flows(self, stage: int, pair: Pair) -> dict[int, Literal]:
        """(19) Replicas that go from zone to zone after a stage."""
        shape = self.shape
        ends = [(s, (s + shape.dp) % shape.slots) for s in self._stage(stage)]
        crossing = [self._crosses(19, *both, [pair]) for both in ends]
        return self._count(19, crossing, f"flows_{stage}_{pair[0]}_{pair[1]}")

    def send_terms(self, slot: int, kind: int) -> list[Linear]:
        """(15) Times that a message of a kind to the next stage takes at least, ns."""
        terms = []
        for i, source in self.owners[slot]:
            for j, target in self.owners[(slot + self.shape.dp) % self.shape.slots]:
                pair = self.zone[i], self.zone[j]
                if pair[0] == pair[1]:
                    continue
                counts = self._flows(slot // self.shape.dp, pair)
                times = {n: self.terms.send_ns(i, j, n)[kind] if n else 0 for n in counts}
                most = max(times.values())
                needed = weighted(times.values(), counts.values())
                terms.append(weighted([1, most, most, -2 * most], [needed, source, target, 1]))
        return terms

    def _new_visits(self, stage: int, zone: int) -> Literal:
        """Whether a stage has slots in a zone."""
        own = [self._inside(s, zone) for s in self._stage(stage)]
        if all(isinstance(literal, int) for literal in own):
            return int(1 in own)
        visits = binary(self.model, f"visits_{stage}_{zone}")
        for literal in own:
            require_at_most(self.model, 20, literal, visits)
        require_at_most(self.model, 20, visits, total_of(*own))
        return visits

    def _new_joins(self, stage: int, pair: Pair) -> Literal:
        """(20) Whether a stage's ring may pass between two zones: it visits both."""
        joins = binary(self.model, f"joins_{stage}_{pair[0]}_{pair[1]}")
        ends = [self._visits(stage, zone) for zone in pair]
        require_at_most(self.model, 20, total_of(*ends, -1), joins)
        return joins

    def _new_rings(self, pair: Pair) -> dict[int, Literal]:
        """(20) Stages whose rings share the link between two zones."""
        joining = [self._joins(k, pair) for k in range(self.shape.pp)]
        return self._count(20, joining, f"rings_{pair[0]}_{pair[1]}")

    def ring_rates(self, stage: int) -> Iterator[tuple[Literal, dict[RingRate, Literal]]]:
        """(17) Whether a stage's ring passes between two zones, and the rate there."""
        for pair in self.pairs:
            rings = self._rings(pair).items()
            yield self._joins(stage, pair), {self.terms.ring_rate(pair, n): b for n, b in rings}

    def ring_latencies(self, stage: int) -> Iterator[tuple[Literal, dict[float, Literal]]]:
        """(17) Whether a stage's ring passes between two zones, and the latency there."""
        for pair in self.pairs:
            yield self._joins(stage, pair), {self.terms.link(pair).latency_s: 1}

    def _new_lanes(self, pair: Pair) -> dict[int, Literal]:
        """(21) Replicas whose first and last stage lie in two zones."""
        last = (self.shape.pp - 1) * self.shape.dp
        ways = [pair, pair[::-1]]
        crossing = [self._crosses(21, r, last + r, ways) for r in self._stage(0)]
        return self._count(21, crossing, f"lanes_{pair[0]}_{pair[1]}")

    def embedding_terms(self) -> list[Linear]:
        """(18) Times that the all-reduce of the tied matrix takes at least, ns."""
        if not self.terms.tables.tied:
            return []
        known = [(pair, self._lanes(pair)) for pair in self.pairs]
        return [
            weighted([self.terms.embedding_ns(pair, n) if n else 0 for n in lanes], lanes.values())
            for pair, lanes in known
        ]


def _constant(literal: Literal) -> int | None:
    return literal if isinstance(literal, int) else None
