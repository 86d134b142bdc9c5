"""Times of the rings over the nodes of a stage: constraint (17) of `node_order`."""

from collections.abc import Iterable, Sequence

from ortools.sat.python import cp_model

from formulations.costs.placement import NodeTerms, SyncPhase
from formulations.costs.sharding import layers_alike
from formulations.costs.tables import Array, CostTables
from formulations.costs.transfers import RingRate
from formulations.cpsat.parts import Split
from formulations.cpsat.terms import Linear, Literal, enforced_maximum
from formulations.cpsat.zones import ZoneVariables
from formulations.fixed import device_sum


def largest(
    model: cp_model.CpModel, terms: Iterable[tuple[tuple[Literal, ...], int]], name: str
) -> Linear:
    """The largest of numbers that hold under their literals."""
    known = list(terms)
    upper = max((value for _, value in known), default=0)
    return enforced_maximum(model, known, upper, name)


class RingTimes:
    """Rings of every stage over its nodes: group, whether it is one, its terms.

    spans: per stage whether it lies on so many nodes.
    """

    def __init__(
        self,
        model: cp_model.CpModel,
        tables: CostTables,
        nodes: Sequence[Sequence[tuple[int, Literal, NodeTerms]]],
        spans: Sequence[dict[int, Literal]],
        zones: ZoneVariables,
    ) -> None:
        self.model, self.tables, self.nodes = model, tables, nodes
        self._spans, self._zones = spans, zones

    def phase(self, phase: SyncPhase, stage: int, split: Split, name: str) -> Linear:
        """Sync or gather of a stage, ns: the slowest rings for layers of each kind."""
        total = self._start_up(phase, stage, name)
        for layers in layers_alike(self.tables.shape, self.tables.gradient_bytes):
            total += self._inside(phase, stage, split, name, layers)
            total += self._outside(phase, stage, split, name, layers)
        return total

    def _inside(
        self, phase: SyncPhase, stage: int, split: Split, name: str, layers: Array
    ) -> Linear:
        """Bytes of some layers [L] inside the nodes."""
        stages = self.tables.shape.stages_of(stage)
        rates = {node.inside[stage] for _, _, node in self.nodes[stage]}
        sizes = {rate: phase.inside_ns(rate) * layers for rate in rates}
        sums = {rate: device_sum(split, stages, times) for rate, times in sizes.items()}
        return enforced_maximum(
            self.model,
            [((literal,), sums[node.inside[stage]]) for _, literal, node in self.nodes[stage]],
            max(int(times.sum()) for times in sizes.values()),
            f"{name}_inside[{stage}]",
        )

    def _outside(
        self, phase: SyncPhase, stage: int, split: Split, name: str, layers: Array
    ) -> Linear:
        """Bytes of some layers [L] between the nodes."""
        cluster, stages = self.tables.instance.cluster, self.tables.shape.stages_of(stage)
        known: list[tuple[tuple[Literal, ...], RingRate]] = [
            ((literal,), node.outside[stage])
            for _, literal, node in self.nodes[stage]
            if stage in node.outside
        ]
        known += self._zones.ring_rates(stage)
        rates = {rate for _, rate in known}
        terms: list[tuple[tuple[Literal, ...], Linear]] = []
        upper = 0
        for n, span in self._spans[stage].items():
            efficiency = cluster.efficiency(n)
            sizes = {rate: phase.outside_ns(rate, n, efficiency) * layers for rate in rates}
            sums = {rate: device_sum(split, stages, times) for rate, times in sizes.items()}
            upper = max([upper, *(int(times.sum()) for times in sizes.values())])
            terms.extend(((*literals, span), sums[rate]) for literals, rate in known)
        return enforced_maximum(self.model, terms, upper, f"{name}_outside[{stage}]")

    def _start_up(self, phase: SyncPhase, stage: int, name: str) -> Linear:
        """Latencies of both rings."""
        groups = self.tables.instance.cluster.groups
        inside = largest(
            self.model,
            (
                ((literal,), phase.latency_ns(node.inside_latency_s[stage], 1, 0.0))
                for _, literal, node in self.nodes[stage]
            ),
            f"{name}_inside_start[{stage}]",
        )
        latencies: list[tuple[Literal, float]] = [
            (literal, groups[j].inter_node.latency_s) for j, literal, _ in self.nodes[stage]
        ]
        latencies += self._zones.ring_latencies(stage)
        outside = largest(
            self.model,
            (
                ((literal, span), phase.latency_ns(0.0, n, latency_s))
                for n, span in self._spans[stage].items()
                for literal, latency_s in latencies
            ),
            f"{name}_outside_start[{stage}]",
        )
        return inside + outside
