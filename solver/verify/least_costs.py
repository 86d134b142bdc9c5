"""What collectives and optimizer cost at least, in whatever order the nodes stand.

Every figure here is one of `solver.verify.recount`, with the unknown node replaced by the best one
used and the unknown number of nodes by its least value. Rounded up where the real cost is, after a
margin for float noise. Links between zones are left out, which keeps every figure a lower bound: a
collective takes as long as the slowest of its links, and here one may be missing.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.instance import Instance
from formulations.plan import Shape
from solver.verify.any_order import AnyOrder
from solver.verify.expert_rings import rings_of_experts_ns
from solver.verify.least_rings import at_least_ns, least_collective_ns
from solver.verify.volumes import collective_factors, num_lanes, shards, touched_bytes

Array = NDArray[np.int64]


@dataclass(frozen=True)
class LeastCosts:
    """Lower bounds for the stages of any replica of a shape."""

    instance: Instance
    shape: Shape

    @cached_property
    def order(self) -> AnyOrder:
        """Where slots may lie."""
        return AnyOrder(self.instance, self.shape)

    def tail_ns(self) -> tuple[Array, int]:
        """[U, used groups] per layer of a run, and once: what follows the last backward of a stage.

        Gradient sync, optimizer (of a replica on that group; the slowest counts), gather: one
        after the other.
        """
        workload, order = self.instance.workload, self.order
        parameters, experts = self._parameters()
        reduces, gathers = collective_factors(self.instance, self.shape)
        sizes = workload.gradient_bytes * parameters
        layers, start = least_collective_ns(order, reduces, sizes)
        if gathers:
            sizes = workload.parameter_bytes * parameters
            gather, gather_start = least_collective_ns(order, gathers, sizes)
            layers, start = layers + gather, start + gather_start
        layers = layers + self._expert_rings_ns(experts)
        return layers[:, None] + self._optimizer_ns(parameters, experts), start

    def _parameters(self) -> tuple[Array, Array]:
        """[U, used groups] per GPU: all but those of experts that GPUs share, and these."""
        runs, shape = self.instance.workload.layer_runs, self.shape
        known = [(shape.degrees[j].tp, num_lanes(shape, j)) for j in self.order.used]
        apart = shape.ep > 1 or shape.etp is not None
        counts = [
            [
                (
                    run.layer.dense_per_gpu(tp, shape.pp),
                    run.layer.experts_per_gpu(lanes, shape.ep),
                )
                for tp, lanes in known
            ]
            for run in runs
        ]
        parameters, experts = np.moveaxis(np.array(counts, dtype=np.int64), -1, 0)
        return (parameters, experts) if apart else (parameters + experts, 0 * experts)

    def _optimizer_ns(self, parameters: Array, experts: Array) -> Array:
        """[U, used groups] of so many parameters."""
        speeds = [group.gpu.memory_bandwidth_bytes_per_s for group in self.order.groups]
        columns = zip(self.order.used, parameters.T, experts.T, strict=True)
        held = np.stack([shards(self.shape, 1, *own) for own in columns], axis=1)
        return at_least_ns(touched_bytes(self.instance.workload) * held / np.array(speeds))

    def _expert_rings_ns(self, experts: Array) -> Array:
        """[U] both collectives of experts that GPUs share, which no order changes."""
        workload, found = self.instance.workload, np.zeros(len(experts), dtype=np.int64)
        counts = np.zeros((len(experts), len(self.shape.degrees)), dtype=np.int64)
        counts[:, self.order.used] = experts
        factors = collective_factors(self.instance, self.shape)
        sizes = workload.gradient_bytes, workload.parameter_bytes
        for factor, size in zip(factors, sizes, strict=True):
            found = found + rings_of_experts_ns(self.instance, self.shape, factor, size * counts)
        return found
