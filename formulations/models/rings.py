"""Times of the rings over the nodes of a stage: constraint (17) of `node_order`.

inside[k] >= the ring inside the node that covers each slot of stage k; outside[k] >= the ring
between N nodes at that node's rate, if span[k, N], and at the rate of n rings between zones if
joins[k, y, z] and rings[y, z, n]. Bytes and start-up are apart: each is the largest over the nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from formulations.costs.placement import Placer, SyncPhase
from formulations.costs.sharding import lanes_like, layers_alike
from formulations.costs.tables import Array
from formulations.costs.transfers import RingRate
from formulations.decisions import Start
from formulations.models.layer_to_stage import Split
from formulations.models.model import Costs, Literal, Model, Term, of_numbers, total_of
from formulations.models.zones import ZoneVariables, stage_slots

#: Conditions, and options of which exactly one holds: literals and what they choose.
Choice = tuple[tuple[Literal, ...], Sequence[tuple[Literal, Any]]]


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
        for i, layers in enumerate(layers_alike(self.tables.shape, self.tables.gradient_bytes)):
            place = f"{stage}_{i}" if i else f"{stage}"
            parts += self._bytes(phase, stage, split, layers, name, place)
        return total_of(*parts)

    def _nodes(self, stage: int) -> Iterable[list[tuple[Literal, Start, Any]]]:
        """Of every slot of a stage the starts that may cover it, with their terms."""
        for slot in stage_slots(self.tables.shape, stage):
            yield [(covers, key, self.placer.terms(*key)) for covers, key in self._covering[slot]]

    def _largest(
        self, costs: Costs[Any], choices: Iterable[Choice], stage: int | None, name: str
    ) -> Term:
        """Largest cost of a choice that holds; of pairs at the number of nodes of a stage."""
        spans = None if stage is None else self._spans[stage]
        rows = [
            row
            for holds, options in choices
            for row in self.model.choose(costs, options, spans, holds)
        ]
        return self.model.maximum(17, rows, costs.upper, name)

    def _start_up(self, phase: SyncPhase, stage: int, name: str) -> list[Term]:
        """Latencies of the rings inside and between the nodes."""
        groups, spans = self.tables.instance.cluster.groups, self._spans[stage]
        inside: list[Choice] = [
            ((), [(covers, node.inside_latency_s[stage]) for covers, _, node in nodes])
            for nodes in self._nodes(stage)
        ]
        known = {latency_s for _, options in inside for _, latency_s in options}
        costs = of_numbers({s: phase.latency_ns(s, 1, 0.0) for s in known})
        first = self._largest(costs, inside, None, f"{name}_inside_start_{stage}")
        outside: list[Choice] = [
            ((), [(covers, groups[key[0]].inter_node.latency_s) for covers, key, _ in nodes])
            for nodes in self._nodes(stage)
        ]
        outside += self._zones.ring_latencies(stage)
        known = {latency_s for _, options in outside for _, latency_s in options}
        pairs = of_numbers({(s, n): phase.latency_ns(0.0, n, s) for s in known for n in spans})
        return [first, self._largest(pairs, outside, stage, f"{name}_outside_start_{stage}")]

    def _bytes(
        self, phase: SyncPhase, stage: int, split: Split, layers: Array, name: str, place: str
    ) -> list[Term]:
        """Bytes of some layers [L] inside and between the nodes."""
        shape, efficiency = self.tables.shape, self.tables.instance.cluster.efficiency
        stages = shape.stages_of(stage)
        inside: list[Choice] = [
            ((), [(covers, node.inside[stage]) for covers, _, node in nodes])
            for nodes in self._nodes(stage)
        ]
        known = {rate for _, options in inside for _, rate in options}
        times = {rate: phase.inside_ns(rate) * layers for rate in known}
        costs = split.of_layers(stages, times)
        first = self._largest(costs, inside, None, f"{name}_inside_{place}")

        def outside_rate(key: Start, node: Any) -> RingRate:
            nothing = RingRate(0.0, lanes_like(shape, key[0]))
            rate: RingRate = node.outside.get(stage, nothing)
            return rate

        outside: list[Choice] = [
            ((), [(covers, outside_rate(key, node)) for covers, key, node in nodes])
            for nodes in self._nodes(stage)
        ]
        outside += self._zones.ring_rates(stage)
        known = {rate for _, options in outside for _, rate in options}
        between = {
            (rate, n): phase.outside_ns(rate, n, efficiency(n)) * layers
            for rate in known
            for n in self._spans[stage]
        }
        pairs = split.of_layers(stages, between)
        return [first, self._largest(pairs, outside, stage, f"{name}_outside_{place}")]
