"""Times of the rings over the nodes of a stage: constraint (17) of `node_order`."""

from collections.abc import Mapping, Sequence

from formulations.costs.placement import Placer, SyncPhase
from formulations.costs.sharding import lanes_like, layers_alike
from formulations.costs.tables import Array, CostTables
from formulations.costs.transfers import RingRate
from formulations.decisions import Start
from formulations.milp.choices import Costs, chosen, chosen_pair, of_layers, of_numbers
from formulations.milp.covering import Covering, Value
from formulations.milp.parts import Split
from formulations.milp.terms import Linear, Literal, maximum, total_of
from formulations.milp.zones import ZoneVariables


class RingTimes:
    """Rings of every stage. spans: per stage whether it lies on so many nodes."""

    def __init__(
        self,
        tables: CostTables,
        placer: Placer,
        covering: Covering,
        spans: Sequence[dict[int, Literal]],
        zones: ZoneVariables,
    ) -> None:
        self.tables, self.placer = tables, placer
        self._covering, self._spans, self._zones = covering, spans, zones

    def phase(self, phase: SyncPhase, stage: int, split: Split, name: str) -> Linear:
        """Sync or gather of a stage, ns: the slowest rings for layers of each kind."""
        parts = [
            self._inside_start(phase, stage, f"{name}_inside_start_{stage}"),
            self._outside_start(phase, stage, f"{name}_outside_start_{stage}"),
        ]
        for i, layers in enumerate(layers_alike(self.tables.shape, self.tables.gradient_bytes)):
            kind = f"{stage}_{i}" if i else f"{stage}"
            parts.append(self._inside(phase, stage, split, f"{name}_inside_{kind}", layers))
            parts.append(self._outside(phase, stage, split, f"{name}_outside_{kind}", layers))
        return total_of(*parts)

    def _inside(
        self, phase: SyncPhase, stage: int, split: Split, name: str, layers: Array
    ) -> Linear:
        """Bytes of some layers [L] inside the nodes."""

        def rate(key: Start) -> RingRate:
            return self.placer.terms(*key).inside[stage]

        rates = [self._covering.by_value(slot, rate) for slot in self._covering.slots(stage)]
        times = {one: phase.inside_ns(one) * layers for literals in rates for one in literals}
        costs = of_layers(split, self.tables.shape.stages_of(stage), times)
        terms = [term for literals in rates for term in chosen(costs, literals)]
        return maximum(self._covering.model, 17, terms, name, costs.largest)

    def _outside(
        self, phase: SyncPhase, stage: int, split: Split, name: str, layers: Array
    ) -> Linear:
        """Bytes of some layers [L] between the nodes."""
        spans, efficiency = self._spans[stage], self.tables.instance.cluster.efficiency

        def rate(key: Start) -> RingRate:
            none = RingRate(0.0, lanes_like(self.tables.shape, key[0]))
            return self.placer.terms(*key).outside.get(stage, none)

        slots = self._covering.slots(stage)
        rates: list[tuple[Literal, Mapping[RingRate, Literal]]] = [
            (1, self._covering.by_value(slot, rate)) for slot in slots
        ]
        rates += self._zones.ring_rates(stage)
        known = {one for _, literals in rates for one in literals}
        times = {
            (r, n): phase.outside_ns(r, n, efficiency(n)) * layers for r in known for n in spans
        }
        costs = of_layers(split, self.tables.shape.stages_of(stage), times)
        return self._between(costs, rates, stage, name)

    def _outside_start(self, phase: SyncPhase, stage: int, name: str) -> Linear:
        """Start-up of the rings between the nodes."""
        groups = self.tables.instance.cluster.groups

        def latency(key: Start) -> float:
            return groups[key[0]].inter_node.latency_s

        latencies = [
            (1, self._covering.by_value(slot, latency)) for slot in self._covering.slots(stage)
        ]
        latencies += self._zones.ring_latencies(stage)
        known = {one for _, literals in latencies for one in literals}
        times = {(s, n): phase.latency_ns(0.0, n, s) for s in known for n in self._spans[stage]}
        return self._between(of_numbers(times), latencies, stage, name)

    def _between(
        self,
        costs: Costs[tuple[Value, int]],
        choices: Sequence[tuple[Literal, Mapping[Value, Literal]]],
        stage: int,
        name: str,
    ) -> Linear:
        """Largest cost of a choice that holds, at the number of nodes that the stage spans."""
        spans = self._spans[stage]
        terms = [
            term
            for holds, literals in choices
            for term in chosen_pair(costs, literals, spans, holds)
        ]
        return maximum(self._covering.model, 17, terms, name, costs.largest)

    def _inside_start(self, phase: SyncPhase, stage: int, name: str) -> Linear:
        """Start-up of the rings inside the nodes."""

        def start_up_ns(key: Start) -> int:
            return phase.latency_ns(self.placer.terms(*key).inside_latency_s[stage], 1, 0.0)

        return self._covering.largest(17, self._covering.slots(stage), start_up_ns, name)
