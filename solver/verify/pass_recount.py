"""Times of passes of a plan, with what ZeRO exchanges in them: part of `recount`."""

from math import floor

import numpy as np
from numpy.typing import NDArray

from formulations.costs.collectives import HALF
from formulations.costs.compute import TimeColumns
from formulations.costs.experts import members_of
from solver.verify.counted_rings import CountedRings
from solver.verify.expert_rings import rings_of_experts_ns
from solver.verify.memory_recount import MemoryRecount
from solver.verify.volumes import num_copies, num_holders

Array = NDArray[np.int64]


class PassRecount:
    """Passes of one plan that holds `memory`."""

    def __init__(self, rings: CountedRings, memory: MemoryRecount) -> None:
        self.rings, self.layout, self.memory = rings, rings.layout, memory
        self.instance, self.shape = memory.instance, memory.shape
        columns, b, ways = TimeColumns(self.instance), self.shape.micro_batch, self.shape.recompute
        members = members_of(self.instance, self.shape)
        self.by_way = {way: columns.times(self.shape.degrees, b, way, members) for way in ways}
        self.least = self.by_way[ways[0]]
        self.parameters = np.array(memory.parameters, dtype=np.int64).T  #: [L, J]
        self.experts = np.array(memory.experts, dtype=np.int64).T  #: [L, J]

    @property
    def origins(self) -> tuple[str, ...]:
        """Where the layer times come from."""
        return tuple(sorted(self.least.origins))

    def times_ns(self) -> tuple[Array, Array, Array]:
        """[S, R] forward, backward, of that weight gradients, with what ZeRO 2 and 3 exchange."""
        used = [j for j, count in enumerate(self.shape.nodes_used) if count]
        if self.shape.zero < 2 or all(
            num_holders(self.shape, 0, j) == num_copies(self.shape, j) == 1 for j in used
        ):
            weight = self._per_run(self.least.weight_ns)
            return self._per_run(self.least.forward_ns), self._backward_ns(), weight
        totals = np.sum([self._with_exchanges(x, used) for x in self.memory.stages[0]], axis=0)
        forward, backward, weight = (
            np.full((1, self.shape.dp), total, dtype=np.int64) for total in totals
        )
        return forward, backward, weight

    def _with_exchanges(self, layer: int, used: list[int]) -> tuple[int, int, int]:
        """The same of one layer, at the pace of the slowest node group used."""
        workload = self.instance.workload
        forward, backward, weight = (
            times[layer, used]
            for times in (self.least.forward_ns, self.least.backward_ns, self.least.weight_ns)
        )
        gather = 0
        if self.shape.zero == 3:
            gather = self._exchange_ns(workload.parameter_bytes, layer)
        reduce = self._exchange_ns(workload.gradient_bytes, layer)
        late = self._beside(int(weight.max()), reduce)
        inputs = self._beside(int((backward - weight).max()), gather)
        return self._beside(int(forward.max()), gather), inputs + late, late

    def _exchange_ns(self, width: int, layer: int) -> int:
        """One ring pass over all replicas for one layer, then one of its experts over theirs."""
        alike, routed = width * self.parameters[layer][None], width * self.experts[layer][None]
        first = self.rings.collective_ns(0, HALF, alike) if alike.any() else 0
        return first + int(rings_of_experts_ns(self.instance, self.shape, HALF, routed)[0])

    def _beside(self, compute_ns: int, exchange_ns: int) -> int:
        """A pass of a layer with its exchange, of which a share hides while the pass lasts."""
        hidden_ns = floor(self.instance.search.overlap.sharding * exchange_ns)
        return compute_ns + exchange_ns - min(hidden_ns, compute_ns)

    def _per_run(self, times: Array) -> Array:
        """[S, R] sum of times [layer, group] over every virtual stage."""
        where, pp = self.layout.group_index, self.shape.pp
        rows = [
            [sum(int(times[x, where[node]]) for x in own) for node in self.layout.nodes[s % pp]]
            for s, own in enumerate(self.memory.runs)
        ]
        return np.array(rows, dtype=np.int64)

    def _backward_ns(self) -> Array:
        """[S, R] with what is recomputed, layer by layer."""
        where, pp = self.layout.group_index, self.shape.pp
        found = np.zeros((len(self.memory.runs), self.shape.dp), dtype=np.int64)
        for s in range(len(self.memory.runs)):
            for r, node in enumerate(self.layout.nodes[s % pp]):
                times = ((x, self.by_way[way].backward_ns) for x, way in self.memory.ways_of(s, r))
                found[s, r] = sum(int(table[x, where[node]]) for x, table in times)
        return found
