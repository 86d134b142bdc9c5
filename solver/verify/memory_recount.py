"""Memory of a plan, counted from the layers that every stage holds: part of `recount`."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain

from formulations.costs.memory import layer_memory
from formulations.instance import Instance
from formulations.instance.workload import QUANTIZED_BLOCK, Recompute
from formulations.plan import Plan
from formulations.schedules import Kind, device_order
from formulations.units import ceil_div
from solver.verify.volumes import shards


class MemoryRecount:
    """What the GPUs of one plan hold. runs: layers of every virtual stage."""

    def __init__(self, instance: Instance, plan: Plan, runs: Sequence[range]) -> None:
        self.instance, self.plan, self.shape, self.runs = instance, plan, plan.shape, runs
        #: layers on the GPUs of every stage
        self.stages = [list(chain(*runs[k :: self.shape.pp])) for k in range(self.shape.pp)]
        memory = layer_memory(instance, self.shape)
        #: by node group, parameters of every layer on one GPU
        self.parameters: list[list[int]] = [own.parameters.tolist() for own in memory]
        #: the same of experts that GPUs share
        self.experts: list[list[int]] = [own.experts.tolist() for own in memory]
        #: by node group and way to recompute
        self.kept = [dict(zip(self.shape.recompute, own.kept, strict=True)) for own in memory]

    def ways_of(self, s: int, r: int) -> list[tuple[int, Recompute]]:
        """The layers of virtual stage s of replica r, and what is recomputed of each."""
        stated = self.plan.replicas[r].stages[s].recomputed
        layers, left, found = self.instance.workload.layers, stated.blocks, []
        for layer in self.runs[s]:
            first = layers[layer].is_block and left > 0
            found.append((layer, stated.way if first else self.shape.recompute[0]))
            left -= first
        return found

    def group_of(self, k: int, r: int) -> int:
        """Node group of stage k of replica r."""
        node = self.plan.replicas[r].stages[k].group.node
        return self.instance.cluster.node_groups[node]

    def parts(self, k: int, r: int) -> dict[str, int]:
        """What the memory of a GPU of stage k of replica r holds, in bytes."""
        workload, shape, j = self.instance.workload, self.shape, self.group_of(k, r)
        own, counts = shape.degrees[j], [self.parameters[j][layer] for layer in self.stages[k]]
        routed = [self.experts[j][layer] for layer in self.stages[k]]

        def held_of(split_from: int) -> list[int]:
            """Per layer, where ZeRO from this stage on splits it."""
            return [shards(shape, split_from, j, *own) for own in zip(counts, routed, strict=True)]

        stages = range(k, len(self.runs), shape.pp)
        held = [(x, self.kept[j][way]) for s in stages for x, way in self.ways_of(s, r)]
        recomputed = max(int(kept.workspace_bytes[x]) for x, kept in held)
        tensors = max(layer.output_tensors for layer in workload.layers)
        message = own.sequences(shape.micro_batch) * tensors * workload.boundary_bytes
        message = ceil_div(message, own.cp)
        lanes = own.tp if self.instance.search.sequence_parallel else 1
        messages = 2 * (shape.pp > 1) * ceil_div(message, lanes)
        each = held_of(1)
        scales = workload.optimizer_block_bytes * sum(
            ceil_div(count, QUANTIZED_BLOCK) for count in each
        )
        return {
            "weights_bytes": workload.parameter_bytes * sum(held_of(3)) + self._copies_bytes(k, j),
            "gradients_bytes": workload.gradient_bytes * sum(held_of(2)),
            "optimizer_bytes": workload.optimizer_bytes * sum(each) + scales,
            "activations_bytes": self._most_kept(k, r) + recomputed,
            "buffers_bytes": messages,
            "reserve_bytes": self.instance.limits.framework_reserve_bytes,
        }

    def _copies_bytes(self, k: int, j: int) -> int:
        """8-bit copies of the parameters that products of blocks read."""
        workload, layers = self.instance.workload, self.stages[k]
        blocks = [layer for layer in layers if workload.layers[layer].is_block]
        return workload.copy_bytes * sum(
            self.parameters[j][layer] + self.experts[j][layer] for layer in blocks
        )

    def _most_kept(self, k: int, r: int) -> int:
        """Most bytes that a GPU of stage k of replica r keeps for backward passes at once.

        Operation by operation: a forward pass keeps the activations of its layers until the
        backward pass, and that what the weight gradients need, where they are put off.
        """
        order = list(
            device_order(
                self.shape.schedule,
                self.shape.pp,
                k,
                self.plan.replicas[r].micro_batches,
                self.shape.vpp,
            )
        )
        put_off, j = any(one.kind == Kind.WEIGHT for one in order), self.group_of(k, r)
        whole = [
            sum(int(self.kept[j][way].activation_bytes[x]) for x, way in self.ways_of(s, r))
            for s in range(len(self.runs))
        ]
        late = [self._late_bytes(own, j) if put_off else 0 for own in self.runs]
        change = {
            Kind.FORWARD: whole,
            Kind.BACKWARD: [b - a for a, b in zip(whole, late, strict=True)],
            Kind.WEIGHT: [-b for b in late],
        }
        return max(accumulate(change[one.kind][one.stage] for one in order))

    def _late_bytes(self, run: Iterable[int], j: int) -> int:
        """What the weight gradients of these layers need of one micro-batch."""
        workload, own = self.instance.workload, self.shape.degrees[j]
        layers = (workload.whole_experts if self.shape.etp else workload).layers
        split = self.instance.search.sequence_parallel
        sizes = (layers[x].weight_gradient_bytes(own.tp, split) for x in run)
        sequences = own.sequences(self.shape.micro_batch)
        return sum(ceil_div(sequences * size, own.cp) for size in sizes)
