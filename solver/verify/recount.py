"""Costs of a plan, counted from the groups that it names: a second witness of the cost model.

Nothing here knows of nodes in a row of slots, as `formulations.costs.placement` does. The GPUs of
every (stage, replica) are looked up, and what crosses a link is counted flow by flow:

* a transfer inside a node has its link to itself; one between nodes shares the sender's link with
  all flows of that boundary that leave the node, and the receiver's with all that enter it;
* of several chunks per GPU, each sends to the GPUs of the next stage, the last stage to the first;
* ZeRO 2 and 3 reduce gradients, and ZeRO 3 gathers parameters, layer by layer with every
  micro-batch, a share of it while the pass lasts; replicas then go through the layers at the pace
  of the slowest;
* a collective runs in rings inside the nodes, then between them. A node's link is shared by the
  tp rings of every stage that has groups on this node and on another;
* the tied matrix is reduced between first and last stage, replica by replica;
* between two zones there is one link more, which all that pass from one to the other share: flows
  of a boundary, rings between nodes (zone by zone, in the cluster's order, and back), tied lanes.
"""

from collections.abc import Callable
from functools import cached_property
from math import floor

import numpy as np
from numpy.typing import NDArray

from formulations.costs.collectives import HALF
from formulations.costs.compute import TimeColumns
from formulations.costs.experts import members_of
from formulations.costs.memory import capacity_bytes
from formulations.costs.plan_costs import PlanCosts
from formulations.instance import Instance
from formulations.plan import Plan
from formulations.units import NANOSECONDS_PER_SECOND, ceil_count, ceil_div
from solver.verify.expert_rings import num_copies, rings_of_experts_ns
from solver.verify.layout import Layout
from solver.verify.memory_recount import MemoryRecount
from solver.verify.places import by_place
from solver.verify.volumes import (
    collective_factors,
    num_holders,
    tied_bytes,
    touched_bytes,
)

Array = NDArray[np.int64]


class Recount:
    """Costs of one plan whose replicas share one split."""

    def __init__(self, instance: Instance, plan: Plan) -> None:
        machines: tuple[int, ...] = ()
        if plan.shape.per_stage:
            instance, plan, machines = by_place(instance, plan)
        self.instance, self.plan, self.shape = instance, plan, plan.shape
        self.runs = [range(*stage.layers) for stage in plan.replicas[0].stages]
        last = [instance.workload.layers[layers[-1]] for layers in self.runs[:-1]]
        stages, replicas = range(self.shape.pp), plan.replicas
        self.layout = Layout(
            instance,
            self.shape,
            tuple(tuple(one.stages[k].group.node for one in replicas) for k in stages),
            tuple(layer.output_tensors for layer in last),
            machines,
        )
        columns, b, ways = TimeColumns(instance), self.shape.micro_batch, self.shape.recompute
        members = members_of(instance, self.shape)
        self.by_way = {way: columns.times(self.shape.degrees, b, way, members) for way in ways}
        self.times = self.by_way[ways[0]]
        self.memory = MemoryRecount(instance, plan, self.runs)

    def costs(self) -> PlanCosts:
        """All costs of the plan."""
        reduces, gathers = collective_factors(self.instance, self.shape)
        forward, backward, weight = self._passes()
        return PlanCosts(
            shape=self.shape,
            micro_batches=tuple(replica.micro_batches for replica in self.plan.replicas),
            blocking_sends=self.instance.search.blocking_sends,
            tied=any(tied_bytes(self.instance, self.shape, j) for j in self._groups),
            forward_ns=forward,
            backward_ns=backward,
            weight_ns=weight,
            send_ns=self._send_ns(),
            sync_ns=self._collectives(reduces, self.gradients, self._experts[0]),
            optimizer_ns=self._per_group(self._optimizer_ns).max(axis=1),
            gather_ns=self._collectives(gathers, self.weights, self._experts[1]),
            embedding_ns=self.layout.embedding_ns(),
            memory_bytes=self._per_group(lambda k, r, _: sum(self.memory.parts(k, r).values())),
            limit_bytes=self._per_group(lambda k, r, j: int(self.capacities[j])),
        )

    @property
    def origins(self) -> tuple[str, ...]:
        """Where the layer times come from."""
        return tuple(sorted(self.times.origins))

    @cached_property
    def capacities(self) -> Array:
        """Usable bytes per GPU of every node group."""
        return capacity_bytes(self.instance)

    def _per_group(self, figure: Callable[[int, int, int], int]) -> Array:
        """[p, R] `figure` of stage k, replica r and the node group j that it runs on."""
        where = self.layout.group_index
        rows = [
            [figure(k, r, where[node]) for r, node in enumerate(row)]
            for k, row in enumerate(self.layout.nodes)
        ]
        return np.array(rows, dtype=np.int64)

    @property
    def _groups(self) -> range:
        return range(len(self.shape.degrees))

    @cached_property
    def gradients(self) -> Array:
        """[L, J] bytes of gradients of every layer on one GPU, whole."""
        counts = np.array(self.memory.parameters, dtype=np.int64).T
        return self.instance.workload.gradient_bytes * counts

    @cached_property
    def weights(self) -> Array:
        """[L, J] bytes of parameters of every layer on one GPU, whole."""
        counts = np.array(self.memory.parameters, dtype=np.int64).T
        return self.instance.workload.parameter_bytes * counts

    def _passes(self) -> tuple[Array, Array, Array]:
        """[S, R] forward, backward, of that weight gradients, with what ZeRO 2 and 3 exchange."""
        times = self.times
        alone = all(self.shape.ranks(j) == 1 for j in self._groups if self.shape.nodes_used[j])
        if self.shape.zero < 2 or alone:
            weight = self._per_run(times.weight_ns)
            return self._per_run(times.forward_ns), self._backward_ns(), weight
        rows = self.layout.nodes[0]
        used = sorted({self.layout.group_index[node] for node in rows})
        totals = [0, 0, 0]
        for layer in self.memory.stages[0]:
            inputs = times.backward_ns[layer, used] - times.weight_ns[layer, used]
            gather = self._exchange_ns(self.weights[layer]) if self.shape.zero == 3 else 0
            reduce = self._exchange_ns(self.gradients[layer])
            late = self._beside(int(times.weight_ns[layer, used].max()), reduce)
            totals[0] += self._beside(int(times.forward_ns[layer, used].max()), gather)
            totals[1] += self._beside(int(inputs.max()), gather) + late
            totals[2] += late
        forward, backward, weight = (
            np.full((1, len(rows)), total, dtype=np.int64) for total in totals
        )
        return forward, backward, weight

    def _exchange_ns(self, sizes_bytes: Array) -> int:
        """One ring pass over all replicas for one layer."""
        return self.layout.collective_ns(0, HALF, sizes_bytes[None]) if sizes_bytes.any() else 0

    def _beside(self, compute_ns: int, exchange_ns: int) -> int:
        """A pass of a layer with its exchange, of which a share hides while the pass lasts."""
        hidden_ns = floor(self.instance.search.overlap.sharding * exchange_ns)
        return compute_ns + exchange_ns - min(hidden_ns, compute_ns)

    def _per_run(self, times: Array) -> Array:
        """[S, R] sum of times [layer, group] over every virtual stage."""
        where, pp = self.layout.group_index, self.shape.pp
        rows = [
            [sum(int(times[x, where[node]]) for x in own) for node in self.layout.nodes[s % pp]]
            for s, own in enumerate(self.runs)
        ]
        return np.array(rows, dtype=np.int64)

    def _backward_ns(self) -> Array:
        """[S, R] with what is recomputed, layer by layer."""
        where, pp = self.layout.group_index, self.shape.pp
        found = np.zeros((len(self.runs), self.shape.dp), dtype=np.int64)
        for s in range(len(self.runs)):
            for r, node in enumerate(self.layout.nodes[s % pp]):
                times = ((x, self.by_way[way].backward_ns) for x, way in self.memory.ways_of(s, r))
                found[s, r] = sum(int(table[x, where[node]]) for x, table in times)
        return found

    def _send_ns(self) -> Array:
        replicas = range(self.shape.dp)
        rows = [[self.layout.send_ns(s, r) for r in replicas] for s in range(len(self.runs) - 1)]
        return np.array(rows, dtype=np.int64).reshape(-1, self.shape.dp)

    @cached_property
    def _experts(self) -> tuple[Array, Array]:
        """[L, J] bytes of gradients and of parameters of experts that GPUs share."""
        counts, workload = np.array(self.memory.experts, dtype=np.int64).T, self.instance.workload
        return workload.gradient_bytes * counts, workload.parameter_bytes * counts

    def _collectives(self, factor: float, sizes_bytes: Array, experts_bytes: Array) -> Array:
        """[p] over the replicas of every stage."""
        experts = rings_of_experts_ns(self.instance, self.shape, factor, experts_bytes)
        times = [
            self.layout.collective_ns(k, factor, sizes_bytes[layers]) * (factor > 0)
            + int(experts[layers].sum())
            for k, layers in enumerate(self.memory.stages)
        ]
        return np.array(times, dtype=np.int64)

    def _optimizer_ns(self, k: int, _: int, j: int) -> int:
        touched = touched_bytes(self.instance.workload)
        shards = num_holders(self.shape, 1, j)
        sharers = num_copies(self.shape, j) if self.shape.zero >= 1 else 1
        speed = self.instance.cluster.groups[j].gpu.memory_bandwidth_bytes_per_s
        sizes = (
            touched
            * (
                ceil_div(self.memory.parameters[j][layer], shards)
                + ceil_div(self.memory.experts[j][layer], sharers)
            )
            for layer in self.memory.stages[k]
        )
        return sum(ceil_count(size / speed * NANOSECONDS_PER_SECOND) for size in sizes)
