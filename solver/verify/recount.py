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

import numpy as np
from numpy.typing import NDArray

from formulations.costs.memory import capacity_bytes
from formulations.costs.plan_costs import PlanCosts
from formulations.instance import Instance
from formulations.plan import Plan
from formulations.units import NANOSECONDS_PER_SECOND, ceil_count
from solver.verify.counted_flows import CountedFlows
from solver.verify.counted_rings import CountedRings
from solver.verify.expert_rings import rings_of_experts_ns
from solver.verify.layout import Layout
from solver.verify.memory_recount import MemoryRecount
from solver.verify.pass_recount import PassRecount
from solver.verify.places_as_groups import by_place
from solver.verify.volumes import (
    collective_factors,
    shards,
    tied_bytes,
    touched_bytes,
)

Array = NDArray[np.int64]


class Recount:
    """Costs of one plan whose replicas share one split."""

    def __init__(self, instance: Instance, plan: Plan) -> None:
        machines: tuple[int, ...] = ()
        instance = instance.on(plan.shape.nodes_used)
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
            machines,
        )
        self.flows = CountedFlows(self.layout, tuple(layer.output_tensors for layer in last))
        self.rings = CountedRings(self.layout)
        self.memory = MemoryRecount(instance, plan, self.runs)
        self.passes = PassRecount(self.rings, self.memory)

    def costs(self) -> PlanCosts:
        """All costs of the plan."""
        reduces, gathers = collective_factors(self.instance, self.shape)
        forward, backward, weight = self.passes.times_ns()
        workload = self.instance.workload
        return PlanCosts(
            shape=self.shape,
            micro_batches=tuple(replica.micro_batches for replica in self.plan.replicas),
            blocking_sends=self.instance.search.blocking_sends,
            tied=any(
                tied_bytes(self.instance, self.shape, j) for j in range(len(self.shape.degrees))
            ),
            forward_ns=forward,
            backward_ns=backward,
            weight_ns=weight,
            send_ns=self._send_ns(),
            sync_ns=self._collectives(reduces, workload.gradient_bytes),
            optimizer_ns=self._per_group(self._optimizer_ns).max(axis=1),
            gather_ns=self._collectives(gathers, workload.parameter_bytes),
            embedding_ns=self.rings.embedding_ns(),
            memory_bytes=self._per_group(lambda k, r, _: sum(self.memory.parts(k, r).values())),
            limit_bytes=self._per_group(lambda k, r, j: int(self.capacities[j])),
        )

    @property
    def origins(self) -> tuple[str, ...]:
        """Where the layer times come from."""
        return self.passes.origins

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

    def _send_ns(self) -> Array:
        replicas = range(self.shape.dp)
        rows = [[self.flows.send_ns(s, r) for r in replicas] for s in range(len(self.runs) - 1)]
        return np.array(rows, dtype=np.int64).reshape(-1, self.shape.dp)

    def _collectives(self, factor: float, parameter_bytes: int) -> Array:
        """[p] over the replicas of every stage; so many bytes for each parameter."""
        whole, shared = (
            parameter_bytes * np.array(counts, dtype=np.int64).T
            for counts in (self.memory.parameters, self.memory.experts)
        )
        experts = rings_of_experts_ns(self.instance, self.shape, factor, shared)
        times = [
            self.rings.collective_ns(k, factor, whole[layers]) * (factor > 0)
            + int(experts[layers].sum())
            for k, layers in enumerate(self.memory.stages)
        ]
        return np.array(times, dtype=np.int64)

    def _optimizer_ns(self, k: int, _: int, j: int) -> int:
        touched, memory = touched_bytes(self.instance.workload), self.memory
        speed = self.instance.cluster.groups[j].gpu.memory_bandwidth_bytes_per_s
        sizes = (
            touched * shards(self.shape, 1, j, memory.parameters[j][x], memory.experts[j][x])
            for x in memory.stages[k]
        )
        return sum(ceil_count(size / speed * NANOSECONDS_PER_SECOND) for size in sizes)
