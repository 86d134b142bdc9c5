"""Costs of a plan, counted from the groups that it names: a second witness of the cost model.

Nothing here knows of nodes in a row of slots, as `formulations.costs.placement` does. The GPUs of
every (stage, replica) are looked up, and what crosses a link is counted flow by flow:

* a transfer inside a node has its link to itself; one between nodes shares the sender's link with
  all flows of that boundary that leave the node, and the receiver's with all that enter it;
* of several chunks per GPU, each sends to the GPUs of the next stage, the last stage to the first;
* ZeRO 2 and 3 reduce gradients, and ZeRO 3 gathers parameters, layer by layer with every
  micro-batch; replicas then go through the layers at the pace of the slowest;
* a collective runs in rings inside the nodes, then between them. A node's link is shared by the
  tp rings of every stage that has groups on this node and on another;
* the tied matrix is reduced between first and last stage, replica by replica;
* between two zones there is one link more, which all that pass from one to the other share: flows
  of a boundary, rings between nodes (zone by zone, in the cluster's order, and back), tied lanes.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain

import numpy as np
from numpy.typing import NDArray

from formulations.costs.collectives import ALL_REDUCE, HALF, ring_latency_s, ring_share
from formulations.costs.compute import layer_times
from formulations.costs.memory import capacity_bytes, layer_memory
from formulations.costs.plan_costs import PlanCosts
from formulations.instance import Instance, Link, NodeGroup
from formulations.instance.workload import QUANTIZED_BLOCK, Workload, padded_vocabulary
from formulations.plan import Plan, Shape
from formulations.schedules import Kind, device_order
from formulations.units import NANOSECONDS_PER_SECOND, ceil_count, ceil_div, ceil_ns

Array = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Where a plan runs: nodes[k][r] is the node of stage k of replica r, for p stages of GPUs.

    Virtual stage s, a run of layers, is on the GPUs of stage s mod p. messages_bytes[s]: what one
    GPU sends from virtual stage s to the next for one micro-batch.
    """

    instance: Instance
    shape: Shape
    nodes: tuple[tuple[int, ...], ...]
    messages_bytes: tuple[int, ...]

    def group(self, node: int) -> NodeGroup:
        """The group that a node belongs to."""
        return self.instance.cluster.groups[self.group_index[node]]

    @cached_property
    def group_index(self) -> tuple[int, ...]:
        """Group index of every node of the cluster."""
        return self.instance.cluster.node_groups

    @cached_property
    def zone(self) -> tuple[str | None, ...]:
        """Zone of every node of the cluster."""
        return tuple(self.instance.cluster.groups[j].zone for j in self.group_index)

    @cached_property
    def zone_link(self) -> Link:
        """The link between two zones."""
        link = self.instance.cluster.zone_link
        assert link is not None  # Cluster: nodes in two zones have one
        return link

    @cached_property
    def members(self) -> list[Counter[int]]:
        """Per stage: number of tensor groups on each of its nodes."""
        return [Counter(row) for row in self.nodes]

    @cached_property
    def rings(self) -> Counter[int]:
        """Per node: rings of GPUs that cross its border, over all stages."""
        crossing = [node for stage in self.members if len(stage) > 1 for node in stage]
        return Counter(node for node in crossing for _ in range(self.shape.tp))

    @cached_property
    def departures(self) -> list[Counter[int]]:
        """Per boundary: flows from GPU to GPU that leave each node."""
        return [self._flows(pairs, lambda source, target: source) for pairs in self.boundaries]

    @cached_property
    def arrivals(self) -> list[Counter[int]]:
        """Per boundary: flows from GPU to GPU that enter each node."""
        return [self._flows(pairs, lambda source, target: target) for pairs in self.boundaries]

    @cached_property
    def boundaries(self) -> list[list[tuple[int, int]]]:
        """From every stage of GPUs that sends to the next: nodes of sender and receiver."""
        targets = self.nodes[1:] + (self.nodes[:1] if self.shape.vpp > 1 else ())
        rows = zip(self.nodes, targets, strict=False)
        return [list(zip(*row, strict=True)) for row in rows]

    def _flows(
        self, pairs: Iterable[tuple[int, int]], end: Callable[[int, int], int]
    ) -> Counter[int]:
        lanes = range(self.shape.tp)
        return Counter(end(a, b) for a, b in pairs if a != b for _ in lanes)

    @cached_property
    def passages(self) -> list[Counter[tuple[str | None, str | None]]]:
        """Per boundary: flows from GPU to GPU from zone to zone."""
        return [
            Counter((self.zone[a], self.zone[b]) for a, b in pairs for _ in range(self.shape.tp))
            for pairs in self.boundaries
        ]

    @cached_property
    def legs(self) -> list[set[frozenset[str]]]:
        """Per stage: pairs of zones that follow each other on the ring between its nodes."""
        order = dict.fromkeys(self.zone)
        tours = [
            [zone for zone in order if zone and any(self.zone[node] == zone for node in stage)]
            for stage in self.members
        ]
        return [
            {frozenset((tour[i - 1], tour[i])) for i in range(len(tour)) if len(tour) > 1}
            for tour in tours
        ]

    def send_ns(self, s: int, r: int) -> int:
        """Transfer of one micro-batch between virtual stages s and s + 1 of replica r, any way."""
        k, size = s % self.shape.pp, self.messages_bytes[s]
        source, target = self.boundaries[k][r]
        if source == target:
            return ceil_ns(self._inside_s(source, size))
        own = [self.group(node).inter_node for node in (source, target)]
        ways = [
            self._outside_s(source, own[0], self.departures[k][source] * size, size),
            self._outside_s(target, own[1], self.arrivals[k][target] * size, size),
        ]
        way = (self.zone[source], self.zone[target])
        if way[0] != way[1]:
            whole = self.passages[k][way] * size
            ways += [
                self._outside_s(node, self.zone_link, whole, size) for node in (source, target)
            ]
        return max(map(ceil_ns, ways))

    def _inside_s(self, node: int, size_bytes: int) -> float:
        link = self.group(node).intra_node
        return size_bytes / link.bandwidth_bytes_per_s + link.latency_s

    def _outside_s(self, node: int, link: Link, whole_bytes: int, size_bytes: int) -> float:
        """`whole_bytes` of all flows over a link, one of which has `size_bytes`."""
        outside_s = whole_bytes / link.bandwidth_bytes_per_s + link.latency_s
        if self.instance.search.gathers_messages:  # the parts are gathered inside the node
            outside_s += (self.shape.tp - 1) * self._inside_s(node, size_bytes)
        return outside_s

    def collective_ns(self, k: int, factor: float, sizes_bytes: Iterable[int]) -> int:
        """Ring collective over the replicas of stage k, one buffer per layer."""
        groups = {node: self.group(node) for node in self.members[k]}
        count = len(groups)
        inside_s_per_byte = max(
            ring_share(factor, n) / groups[node].intra_node.bandwidth_bytes_per_s
            for node, n in self.members[k].items()
        )
        links = [(group.inter_node, self.rings[node]) for node, group in groups.items()]
        links += [(self.zone_link, self._zone_rings(leg)) for leg in self.legs[k]]
        outside_s_per_byte = max(
            rings * ring_share(factor, count) / link.bandwidth_bytes_per_s for link, rings in links
        ) / self.instance.cluster.efficiency(count)
        start_s = max(
            ring_latency_s(factor, n, groups[node].intra_node.latency_s)
            for node, n in self.members[k].items()
        )
        between_s = max(ring_latency_s(factor, count, link.latency_s) for link, _ in links)
        layers = (
            ceil_ns(size * inside_s_per_byte) + ceil_ns(size * outside_s_per_byte)
            for size in sizes_bytes
        )
        return sum(layers) + ceil_ns(start_s) + ceil_ns(between_s)

    def _zone_rings(self, leg: frozenset[str]) -> int:
        """Rings of GPUs between two zones, over all stages."""
        return self.shape.tp * sum(leg in legs for legs in self.legs)

    def embedding_ns(self, size_bytes: int) -> int:
        """All-reduce of a tied matrix between the two groups of every replica that hold it."""
        if not size_bytes:
            return 0
        pairs = list(zip(self.nodes[0], self.nodes[-1], strict=True))
        lanes = Counter(node for a, b in pairs if a != b for node in (a, b))
        links = [
            (self.group(node).inter_node, count * self.shape.tp) for node, count in lanes.items()
        ]
        links += [(self.group(a).intra_node, 1) for a, b in pairs if a == b]
        zones = Counter(frozenset((self.zone[a], self.zone[b])) for a, b in pairs)
        links += [
            (self.zone_link, count * self.shape.tp)
            for ends, count in zones.items()
            if len(ends) > 1
        ]
        return max(
            ceil_ns(
                flows * ring_share(ALL_REDUCE, 2) * size_bytes / link.bandwidth_bytes_per_s
                + ring_latency_s(ALL_REDUCE, 2, link.latency_s)
            )
            for link, flows in links
        )


def num_holders(shape: Shape, split_from: int) -> int:
    """Replicas over which ZeRO from this stage on splits what the others hold whole."""
    return shape.dp if shape.zero >= split_from else 1


def collective_factors(instance: Instance, shape: Shape) -> tuple[float, float]:
    """Once per step, of a ring pass: reducing gradients, and gathering parameters.

    Less what backward passes hide: no more than is assumed, and where there are several stages
    never the last chunk of a GPU.
    """
    hidden = instance.search.overlap.gradient_sync
    if shape.pp > 1:
        hidden = min(hidden, (shape.vpp - 1) / shape.vpp)
    if shape.zero == 0:
        return ALL_REDUCE * (1 - hidden), 0
    return (HALF * (1 - hidden) if shape.zero == 1 else 0), (HALF if shape.zero < 3 else 0)


def message_bytes(instance: Instance, shape: Shape) -> int:
    """One tensor of one micro-batch that one GPU sends to the next stage; a message has some."""
    whole = shape.micro_batch * instance.workload.boundary_bytes
    return ceil_div(whole, shape.tp) if instance.search.splits_messages else whole


def touched_bytes(workload: Workload) -> int:
    """Memory traffic of the optimizer per parameter: reads gradient and state, writes back."""
    return workload.gradient_bytes + 2 * workload.optimizer_bytes + workload.parameter_bytes


def tied_bytes(instance: Instance, shape: Shape) -> int:
    """Gradient of the copy of the embedding on the last stage, per GPU; 0 if there is none."""
    head = instance.workload.layers[-1]
    if shape.pp == 1 or not head.tied_copy:
        return 0
    rows = padded_vocabulary(head.vocabulary_rows, shape.tp) // shape.tp
    return rows * head.vocabulary_columns * instance.workload.gradient_bytes


class Recount:
    """Costs of one plan whose replicas share one split."""

    def __init__(self, instance: Instance, plan: Plan) -> None:
        self.instance, self.plan, self.shape = instance, plan, plan.shape
        self.runs = [range(*stage.layers) for stage in plan.replicas[0].stages]
        #: layers on the GPUs of every stage
        self.stages = [list(chain(*self.runs[k :: self.shape.pp])) for k in range(self.shape.pp)]
        last = [instance.workload.layers[layers[-1]] for layers in self.runs[:-1]]
        tensor = message_bytes(instance, plan.shape)
        stages, replicas = range(self.shape.pp), plan.replicas
        self.layout = Layout(
            instance,
            self.shape,
            tuple(tuple(one.stages[k].group.node for one in replicas) for k in stages),
            tuple(layer.output_tensors * tensor for layer in last),
        )
        self.times = layer_times(
            instance, self.shape.tp, self.shape.micro_batch, self.shape.recompute
        )
        self.memory = layer_memory(instance, self.shape)

    def costs(self) -> PlanCosts:
        """All costs of the plan."""
        reduces, gathers = collective_factors(self.instance, self.shape)
        tied = tied_bytes(self.instance, self.shape)
        forward, backward, weight = self._passes()
        return PlanCosts(
            shape=self.shape,
            micro_batches=tuple(replica.micro_batches for replica in self.plan.replicas),
            blocking_sends=self.instance.search.blocking_sends,
            tied=tied > 0,
            forward_ns=forward,
            backward_ns=backward,
            weight_ns=weight,
            send_ns=self._send_ns(),
            sync_ns=self._collectives(reduces, self.gradients),
            optimizer_ns=self._per_group(self._optimizer_ns).max(axis=1),
            gather_ns=self._collectives(gathers, self.weights),
            embedding_ns=self.layout.embedding_ns(tied),
            memory_bytes=self._per_group(self._memory_bytes),
            limit_bytes=self._per_group(lambda k, r, j: int(self.capacities[j])),
        )

    @property
    def origins(self) -> tuple[str, ...]:
        """Where the layer times come from."""
        return tuple(sorted(self.times.origins))

    @cached_property
    def parameters(self) -> list[int]:
        """Parameters of every layer on one GPU."""
        return [int(count) for count in self.memory.parameters]

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

    @cached_property
    def gradients(self) -> list[int]:
        """Bytes of gradients of every layer on one GPU, whole."""
        return [self.instance.workload.gradient_bytes * count for count in self.parameters]

    @cached_property
    def weights(self) -> list[int]:
        """Bytes of parameters of every layer on one GPU, whole."""
        return [self.instance.workload.parameter_bytes * count for count in self.parameters]

    def _passes(self) -> tuple[Array, Array, Array]:
        """[S, R] forward, backward, of that weight gradients, with what ZeRO 2 and 3 exchange."""
        times = self.times
        if self.shape.zero < 2 or self.shape.dp == 1:
            whole = (times.forward_ns, times.backward_ns, times.weight_ns)
            forward, backward, weight = map(self._per_run, whole)
            return forward, backward, weight
        rows = self.layout.nodes[0]
        used = sorted({self.layout.group_index[node] for node in rows})
        totals = [0, 0, 0]
        for layer in self.stages[0]:
            inputs = times.backward_ns[layer, used] - times.weight_ns[layer, used]
            gather = self._exchange_ns(self.weights[layer]) if self.shape.zero == 3 else 0
            late = int(times.weight_ns[layer, used].max())
            late += self._exchange_ns(self.gradients[layer])
            totals[0] += int(times.forward_ns[layer, used].max()) + gather
            totals[1] += int(inputs.max()) + gather + late
            totals[2] += late
        forward, backward, weight = (
            np.full((1, len(rows)), total, dtype=np.int64) for total in totals
        )
        return forward, backward, weight

    def _exchange_ns(self, size_bytes: int) -> int:
        """One ring pass over all replicas for one layer."""
        return self.layout.collective_ns(0, HALF, [size_bytes]) if size_bytes else 0

    def _per_run(self, times: Array) -> Array:
        """[S, R] sum of times [layer, group] over every virtual stage."""
        where, pp = self.layout.group_index, self.shape.pp
        rows = [
            [sum(int(times[x, where[node]]) for x in own) for node in self.layout.nodes[s % pp]]
            for s, own in enumerate(self.runs)
        ]
        return np.array(rows, dtype=np.int64)

    def _send_ns(self) -> Array:
        replicas = range(self.shape.dp)
        rows = [[self.layout.send_ns(s, r) for r in replicas] for s in range(len(self.runs) - 1)]
        return np.array(rows, dtype=np.int64).reshape(-1, self.shape.dp)

    def _collectives(self, factor: float, sizes_bytes: list[int]) -> Array:
        """[p] over the replicas of every stage."""
        times = [
            self.layout.collective_ns(k, factor, [sizes_bytes[layer] for layer in layers])
            * (factor > 0)
            for k, layers in enumerate(self.stages)
        ]
        return np.array(times, dtype=np.int64)

    def _optimizer_ns(self, k: int, _: int, j: int) -> int:
        touched = touched_bytes(self.instance.workload)
        shards = num_holders(self.shape, 1)
        speed = self.instance.cluster.groups[j].gpu.memory_bandwidth_bytes_per_s
        sizes = (touched * ceil_div(self.parameters[layer], shards) for layer in self.stages[k])
        return sum(ceil_count(size / speed * NANOSECONDS_PER_SECOND) for size in sizes)

    def _memory_bytes(self, k: int, r: int, _: int) -> int:
        return sum(self.memory_parts(k, r).values())

    def memory_parts(self, k: int, r: int) -> dict[str, int]:
        """What the memory of a GPU of stage k of replica r holds, in bytes."""
        workload, shape, memory = self.instance.workload, self.shape, self.memory
        counts = [self.parameters[layer] for layer in self.stages[k]]
        weights, gradients, states = (
            sum(ceil_div(count, num_holders(shape, zero)) for count in counts) for zero in (3, 2, 1)
        )
        recomputed = max(int(memory.workspace_bytes[layer]) for layer in self.stages[k])
        tensors = max(layer.output_tensors for layer in workload.layers)
        message = shape.micro_batch * tensors * workload.boundary_bytes
        lanes = shape.tp if self.instance.search.sequence_parallel else 1
        messages = 2 * (shape.pp > 1) * ceil_div(message, lanes)
        scales = workload.optimizer_block_bytes * sum(
            ceil_div(ceil_div(count, num_holders(shape, 1)), QUANTIZED_BLOCK) for count in counts
        )
        return {
            "weights_bytes": workload.parameter_bytes * weights + self._copies_bytes(k),
            "gradients_bytes": workload.gradient_bytes * gradients,
            "optimizer_bytes": workload.optimizer_bytes * states + scales,
            "activations_bytes": self._most_kept(k, r) + recomputed,
            "buffers_bytes": messages,
            "reserve_bytes": self.instance.limits.framework_reserve_bytes,
        }

    def _copies_bytes(self, k: int) -> int:
        """8-bit copies of the parameters that products of blocks read."""
        workload, layers = self.instance.workload, self.stages[k]
        blocks = [layer for layer in layers if workload.layers[layer].is_block]
        return workload.copy_bytes * sum(self.parameters[layer] for layer in blocks)

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
        put_off = any(one.kind == Kind.WEIGHT for one in order)
        whole = [sum(int(self.memory.activation_bytes[x]) for x in own) for own in self.runs]
        late = [self._late_bytes(own) if put_off else 0 for own in self.runs]
        change = {
            Kind.FORWARD: whole,
            Kind.BACKWARD: [b - a for a, b in zip(whole, late, strict=True)],
            Kind.WEIGHT: [-b for b in late],
        }
        return max(accumulate(change[one.kind][one.stage] for one in order))

    def _late_bytes(self, run: Iterable[int]) -> int:
        """What the weight gradients of these layers need of one micro-batch."""
        layers, shape = self.instance.workload.layers, self.shape
        split = self.instance.search.sequence_parallel
        sizes = (layers[x].weight_gradient_bytes(shape.tp, split) for x in run)
        return shape.micro_batch * sum(sizes)
