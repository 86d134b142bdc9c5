"""What crosses between zones in a free node order: constraints (19) to (21) of `node_order`.

Every count is at least what it counts. Costs grow with it, so that minimisation makes it equal.
Nothing is added where all nodes used stand in one zone.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations

from ortools.sat.python import cp_model

from formulations.costs.tables import CostTables
from formulations.costs.transfers import Pair, RingRate, ZoneTerms
from formulations.cpsat.terms import Literal, require_any, weighted

Conditions = tuple[Literal, ...]


class ZoneVariables:
    """Flows, rings and lanes between zones; `owners`: per slot, groups and whether they own it."""

    def __init__(
        self,
        model: cp_model.CpModel,
        tables: CostTables,
        owners: Sequence[Sequence[tuple[int, Literal]]],
    ) -> None:
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

    def _count(self, literals: Iterable[Literal], name: str) -> dict[int, Literal]:
        """Number -> whether at least so many of the literals hold, for one number; not 0."""
        known = [literal for literal in literals if not isinstance(literal, int)]
        if not known:
            return {}
        numbers = {n: self.model.new_bool_var(f"{name}[{n}]") for n in range(len(known) + 1)}
        self.model.add_exactly_one(numbers.values())
        self.model.add(
            weighted(numbers.keys(), numbers.values()) >= weighted([1] * len(known), known)
        )
        return {n: literal for n, literal in numbers.items() if n}

    def _crosses(self, first: int, second: int, pairs: Sequence[Pair]) -> Literal:
        """Whether two slots lie in one of the pairs of zones; 0 if they never do."""
        ends = [
            (a, b)
            for i, a in self.owners[first]
            for j, b in self.owners[second]
            if (self.zone[i], self.zone[j]) in pairs
        ]
        if not ends:
            return 0
        crosses = self.model.new_bool_var(f"crosses[{first},{second},{pairs[0]}]")
        for end in ends:
            require_any(self.model, [crosses], *end)
        return crosses

    def _new_flows(self, stage: int, pair: Pair) -> dict[int, Literal]:
        """(19) Replicas that go from zone to zone after a stage."""
        shape = self.shape
        ends = [(s, (s + shape.dp) % shape.slots) for s in self._stage(stage)]
        crossing = [self._crosses(*both, [pair]) for both in ends]
        return self._count(crossing, f"flows[{stage},{pair}]")

    def send_terms(self, slot: int) -> Iterator[tuple[Conditions, tuple[int, ...]]]:
        """[K] messages from a slot to the next stage, ns, and when they hold."""
        for i, source in self.owners[slot]:
            for j, target in self.owners[(slot + self.shape.dp) % self.shape.slots]:
                if self.zone[i] != self.zone[j]:
                    flows = self._flows(slot // self.shape.dp, (self.zone[i], self.zone[j]))
                    for n, count in flows.items():
                        yield (source, target, count), self.terms.send_ns(i, j, n)

    def _new_visits(self, stage: int, zone: int) -> Literal:
        """Whether a stage has slots in a zone."""
        own = [
            literal
            for s in self._stage(stage)
            for j, literal in self.owners[s]
            if self.zone[j] == zone
        ]
        if not own or any(isinstance(literal, int) for literal in own):
            return int(bool(own))
        visits = self.model.new_bool_var(f"visits[{stage},{zone}]")
        self.model.add_max_equality(visits, own)
        return visits

    def _new_joins(self, stage: int, pair: Pair) -> Literal:
        """(20) Whether a stage's ring may pass between two zones: it visits both."""
        joins = self.model.new_bool_var(f"joins[{stage},{pair}]")
        require_any(self.model, [joins], *(self._visits(stage, zone) for zone in pair))
        return joins

    def _new_rings(self, pair: Pair) -> dict[int, Literal]:
        """(20) Stages whose rings share the link between two zones."""
        joining = [self._joins(k, pair) for k in range(self.shape.pp)]
        return self._count(joining, f"rings[{pair}]")

    def ring_latencies(self, stage: int) -> Iterator[tuple[Literal, float]]:
        """Latency of the links that a stage's ring may use, and whether it does."""
        for pair in self.pairs:
            yield self._joins(stage, pair), self.terms.link(pair).latency_s

    def ring_rates(self, stage: int) -> Iterator[tuple[Conditions, RingRate]]:
        """Rates of the links of a stage's ring, and when they hold."""
        for pair in self.pairs:
            for n, count in self._rings(pair).items():
                yield (self._joins(stage, pair), count), self.terms.ring_rate(pair, n)

    def _new_lanes(self, pair: Pair) -> dict[int, Literal]:
        """(21) Replicas whose first and last stage lie in two zones."""
        last = (self.shape.pp - 1) * self.shape.dp
        ways = [pair, pair[::-1]]
        crossing = [self._crosses(r, last + r, ways) for r in self._stage(0)]
        return self._count(crossing, f"lanes[{pair}]")

    def embedding_terms(self) -> Iterator[tuple[Conditions, int]]:
        """All-reduce of the tied matrix, ns, and when it holds."""
        for pair in self.pairs:
            for n, count in self._lanes(pair).items():
                yield (count,), self.terms.embedding_ns(pair, n)
