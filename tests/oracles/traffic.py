"""Where everything of a plan is, and its traffic from docs/cost.md: rings, and messages."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import ceil, gcd

from formulations.instance import Instance
from formulations.instance.machines import Link
from formulations.instance.node_group import NodeGroup
from formulations.plan import Degrees, Plan, Stage
from tests.oracles.layers import Model, Row

Pair = frozenset[str | None]  #: two zones


def ns(seconds: float) -> int:
    """Whole ns, rounded up but for the noise of floats."""
    return ceil(seconds * 1e9 * (1 - 1e-12))


def ring_s(f: float, n: int, size: float, link: Link) -> float:
    """The page's ring(f, n, S)."""
    return f * (n - 1) / n * size / link.bandwidth_bytes_per_s + f * (n - 1) * link.latency_s


@dataclass(frozen=True)
class Places:
    """A plan of an instance, for a model whose sizes are given."""

    instance: Instance
    plan: Plan
    model: Model

    @cached_property
    def rows(self) -> list[Row]:
        return self.model.layers()

    @cached_property
    def stages(self) -> list[list[Stage]]:
        """[S][R]."""
        return [list(row) for row in zip(*(r.stages for r in self.plan.replicas), strict=True)]

    def layers_of(self, device: int) -> list[int]:
        """Those of all chunks of a device, the same in each replica."""
        chunks = self.stages[device :: self.plan.config.pp]
        return [x for row in chunks for x in range(*row[0].layers)]

    @cached_property
    def used(self) -> list[int]:
        groups = self.instance.cluster.node_groups
        return sorted({groups[stage.group.node] for row in self.stages for stage in row})

    def splits(self, tp: int) -> bool:
        """Whether tensor groups of so many GPUs have a part of the sequence each."""
        search = self.instance.search
        return search.sequence_parallel and search.split_tokens % tp == 0

    def nodes_like(self, j: int) -> NodeGroup:
        return self.instance.cluster.groups[j]

    def of(self, node: int) -> NodeGroup:
        return self.nodes_like(self.instance.cluster.node_groups[node])

    def near(self, j: int, inside: int, leaving: int = 0) -> Link:
        """Of a ring inside a node, with so many inside it, or that leave each of its machines."""
        group = self.nodes_like(j)
        near, far = group.intra_node, group.inter_node
        rings = leaving or max(1, inside)
        bandwidth = near.bandwidth_bytes_per_s / (rings if near.shared else 1)
        if not leaving:
            return Link(bandwidth_bytes_per_s=bandwidth, latency_s=near.latency_s)
        network = far.bandwidth_bytes_per_s / group.machines / leaving
        latency_s = max(near.latency_s, far.latency_s)
        return Link(bandwidth_bytes_per_s=min(bandwidth, network), latency_s=latency_s)

    def near_tensors(self, j: int, tp: int) -> Link:
        group = self.nodes_like(j)
        gpus = group.gpus_per_node // group.machines
        return self.near(j, 1, leaving=int(tp > gpus))

    def near_copies(self, j: int, tp: int, rings: int) -> Link:
        group = self.nodes_like(j)
        gpus = group.gpus_per_node // group.machines
        return self.near(j, rings, leaving=min(tp, gpus) if group.machines > 1 else 0)

    def zone_link(self, pair: Pair) -> Link:
        first, second = pair
        return self.instance.cluster.link_between(first, second)

    def degrees(self, group: int) -> Degrees:
        return self.plan.config.degrees[group]

    @cached_property
    def widest(self) -> Degrees:
        slots = (stage.degrees for row in self.stages for stage in row)
        return max(slots, key=lambda slot: slot.tp)

    def nodes(self, device: int) -> Counter[int]:
        return Counter(stage.group.node for stage in self.stages[device])

    def tensor_group(self, device: int, node: int) -> Degrees:
        """Degrees of the slots of a device's stage on a node."""
        return next(stage.degrees for stage in self.stages[device] if stage.group.node == node)

    def efficiency(self, num_nodes: int) -> float:
        return max(e for e in self.instance.cluster.network_efficiency if e[0] <= num_nodes)[1]

    def sequences(self, slot: Degrees) -> int:
        """Of a micro-batch, those of a part."""
        return self.plan.config.micro_batch // slot.parts

    def tokens(self, slot: Degrees) -> float:
        """Those that a tensor group has of a micro-batch: t."""
        return self.sequences(slot) * self.model.tokens / slot.cp

    # Experts

    @property
    def grid(self) -> bool:
        """Whether experts lie otherwise on the GPUs of a stage than all else."""
        return self.plan.config.ep > 1 or self.plan.config.etp == 1

    def lanes(self, j: int) -> int:
        """GPUs that split an expert: etp."""
        return 1 if self.plan.config.etp == 1 else self.degrees(j).tp

    def ranks(self, j: int) -> int:
        """Ranks of a node of a group: q."""
        width = self.degrees(j).width
        return self.nodes_like(j).gpus_per_node // width * width // self.lanes(j)

    @property
    def together(self) -> int:
        """Ranks of a group of experts that surely share a node: u."""
        return gcd(self.plan.config.ep, *(self.ranks(j) for j in self.used))

    @property
    def zone_links(self) -> Iterator[Link]:
        zones = {self.nodes_like(j).zone for j in self.used}
        return (self.zone_link(frozenset(pair)) for pair in combinations(zones, 2))


#: GPUs of a ring on a node, or rings that share a link; bytes of each; the link.
Leg = tuple[int, float, Link]


@dataclass(frozen=True)
class Rings:
    """Those of one plan."""

    at: Places

    @property
    def sync_factor(self) -> float:
        """Of gradients after the last backward pass: f, less what hides."""
        config, share = self.at.plan.config, self.at.instance.search.overlap.gradient_sync
        hidden = share if config.pp == 1 else min(share, (config.vpp - 1) / config.vpp)
        return (2, 1, 0, 1 - config.sync_each_batch)[config.zero] * (1 - hidden)

    @property
    def gather_factor(self) -> float:
        """Of parameters after the optimizer: f."""
        return (0, 1, 1, 0)[self.at.plan.config.zero]

    def after_ns(self, device: int, f: float, width: int, reduces: bool = True) -> int:
        """Rings over the layers of a device, with so many bytes for each parameter."""
        if not f:
            return 0
        layers = self.at.layers_of(device)
        total = sum(self._experts_ns(f, width, x) for x in layers)
        for across in self._kinds(reduces):
            rings = [self._layer_ns(device, f, width, x, across) for x in layers]
            total += sum(wire for wire, _ in rings) + rings[0][1]
        return total

    def _kinds(self, reduces: bool) -> list[bool]:
        """Rings of shard groups, and of gradients between several groups."""
        return [False, True] if reduces and self.at.plan.config.optimizer_instances > 1 else [False]

    def with_micro_batches_ns(self, x: int) -> tuple[int, int]:
        """ZeRO 2 and 3: one gather of a layer's parameters, one reduction of its gradients."""
        zero, model = self.at.plan.config.zero, self.at.model
        gather = self._exchange_ns(model.parameter_bytes, x, False) if zero == 3 else 0
        often = zero >= 2 and self.at.plan.config.sync_each_batch
        reduce = self._reducing._exchange_ns(model.gradient_bytes, x, True) if often else 0
        return gather, reduce

    @property
    def _reducing(self) -> "Rings":
        """Those of ZeRO 2 have a rate of their own between nodes, if one is stated."""
        at, rates = self.at, self.at.instance.cluster.reduce_efficiency
        if at.plan.config.zero != 2 or not rates:
            return self
        instance = at.instance.but(cluster={"network_efficiency": rates})
        return Rings(Places(instance, at.plan, at.model))

    def in_lockstep(self, x: int) -> bool:
        return self.at.plan.config.zero >= 2 and self._is_shared(x)

    def _is_shared(self, x: int) -> bool:
        """Whether several GPUs have the same parameters of a layer, or the same experts."""
        dp, at = self.at.plan.config.dp, self.at
        copies = any(dp * at.degrees(j).copies > 1 for j in at.used)
        return copies or self._experts_ns(1, 1, x) > 0

    def _exchange_ns(self, width: int, x: int, reduces: bool) -> int:
        if not self._is_shared(x):
            return 0
        alike = self._bytes(x, self.at.widest, width) > 0
        kinds = self._kinds(reduces) if alike else []
        rings = (self._layer_ns(0, 1, width, x, across) for across in kinds)
        return sum(map(sum, rings)) + self._experts_ns(1, width, x)

    def _bytes(self, x: int, slot: Degrees, width: int) -> int:
        """Bytes of a layer on a GPU, without experts that have rings of their slot."""
        at = self.at
        alike, experts = at.model.parameters(at.rows[x], slot.tp, at.plan.config.pp)
        return width * (alike + (0 if at.grid else experts // slot.tp))

    def _layer_ns(self, device: int, f: float, width: int, x: int, across: bool) -> tuple[int, int]:
        """A layer over the replicas of a stage: bytes, and the start, of the slowest ring.

        Of several shard groups each replica is in one, and across them with those of its place.
        """
        at, times = self.at, list[tuple[int, int]]()
        for slots in self._slots(device, across):
            inside, between = list[Leg](), list[Leg]()
            for node, count in slots.items():
                slot = at.tensor_group(device, node)
                size, ranks = self._bytes(x, slot, width), count * (1 if across else slot.copies)
                if across:
                    size = ceil(size / (self._group * slot.copies))
                j = at.instance.cluster.node_groups[node]
                rings = self._rings(node, across, leaving=False)
                if at.plan.config.per_stage:  # others on the node have as many, says the page
                    rings = at.of(node).gpus_per_node // ranks
                inside.append((ranks, size, at.near_copies(j, slot.tp, rings)))
                crossing = self._rings(node, across, leaving=True)
                between.append((crossing, size, at.of(node).inter_node))
            size = self._bytes(x, at.widest, width)
            for pair in self._zone_pairs(device):
                stages = sum(pair in self._zone_pairs(d) for d in range(at.plan.config.pp))
                between.append((at.widest.tp * stages, size, at.zone_link(pair)))
            factor = 2 * f if across else f
            times.append(self._hierarchical_ns(factor, inside, between, len(slots)))
        return max(wire for wire, _ in times), max(start for _, start in times)

    @property
    def _group(self) -> int:
        """Replicas of a shard group."""
        return self.at.plan.config.dp // self.at.plan.config.optimizer_instances

    def _slots(self, device: int, across: bool) -> list[Counter[int]]:
        """Of each ring of a stage how many of its slots lie on which node."""
        nodes, size = [stage.group.node for stage in self.at.stages[device]], self._group
        if across:
            return [Counter(nodes[place::size]) for place in range(size)]
        return [Counter(nodes[first : first + size]) for first in range(0, len(nodes), size)]

    def _hierarchical_ns(
        self, f: float, inside: Iterable[Leg], between: Iterable[Leg], nodes: int
    ) -> tuple[int, int]:
        """Rings inside nodes, then between so many of them: bytes, and the start."""
        share = f * (nodes - 1) / nodes / self.at.efficiency(nodes)
        near = [ns(f * (n - 1) / n * size / link.bandwidth_bytes_per_s) for n, size, link in inside]
        far = [ns(share * size * n / link.bandwidth_bytes_per_s) for n, size, link in between]
        first = max((n - 1) * link.latency_s for n, _, link in inside)
        second = (nodes - 1) * max(link.latency_s for _, _, link in between)
        return max(near) + max(far), ns(f * first) + ns(f * second)

    def _rings(self, node: int, across: bool, leaving: bool) -> int:
        """Rings that share a node's link, or the one inside it: tp for each with two ends there.

        Of equal shards tp copies: every GPU of a slot has its own.
        """
        at, number = self.at, 0
        for d in range(at.plan.config.pp):
            for ring in self._slots(d, across):
                if node in ring:
                    slot = at.tensor_group(d, node)
                    ranks = ring[node] * (1 if across else slot.copies)
                    if len(ring) > 1 if leaving else ranks > 1:
                        number += slot.tp * (slot.copies if across else 1)
        return number

    def _zone_pairs(self, device: int) -> set[Pair]:
        """Pairs of zones between which a stage's ring may pass."""
        zones = {self.at.of(node).zone for node in self.at.nodes(device)}
        return {frozenset(pair) for pair in combinations(zones, 2)}

    def _experts_ns(self, f: float, width: int, x: int) -> int:
        """Ring of a layer's experts, if they have one of their slot."""
        at, config, experts = self.at, self.at.plan.config, self.at.rows[x].parameters.experts
        if not (at.grid and experts and f):
            return 0
        stage = config.dp * at.degrees(at.used[0]).width // at.lanes(at.used[0])  # ranks
        same, ranks = stage // config.ep, {j: at.ranks(j) for j in at.used}
        if same == 1:
            return 0
        fewest, alike = min(ranks.values()), len(set(ranks.values())) == 1
        aligned = alike and (stage % fewest == 0 or fewest % stage == 0)
        nodes = max(1, stage // fewest)
        if not aligned:
            nodes = min(sum(config.nodes_used), (stage - 1) // fewest + 2)
        size = {j: width * ceil(experts / (at.lanes(j) * config.ep)) for j in at.used}
        inside, between = list[Leg](), list[Leg]()
        for j in at.used:
            group, sets = at.nodes_like(j), min(config.ep, ranks[j])
            members = min(same, ranks[j] // at.together)
            near = at.near(j, group.gpus_per_node // members)
            inside.append((members, size[j], near))
            rings = at.lanes(j) * sets * (1 if aligned else 2)
            between.append((rings, size[j], group.inter_node))
        widest = max(at.used, key=lambda j: at.degrees(j).tp)
        lanes = at.lanes(widest) * config.ep * config.pp
        between += [(lanes, size[widest], link) for link in at.zone_links]
        return sum(self._hierarchical_ns(f, inside, between, min(same, nodes)))

    def embedding_ns(self) -> int:
        at, p = self.at, self.at.plan.config.pp
        if p == 1 or not at.rows[-1].copy:
            return 0
        pairs = list(zip(at.stages[0], at.stages[p - 1], strict=True))
        shared = Counter(
            end.group.node for a, b in pairs for end in (a, b) if a.group.node != b.group.node
        )
        times, crossing = list[int](), Counter[Pair]()
        for a, b in pairs:
            alone = a.group.node == b.group.node
            for slot, node in ((a.degrees, a.group.node), (b.degrees, b.group.node)):
                gpus = 1 if alone else slot.width * shared[node]
                link = at.of(node).intra_node if alone else at.of(node).inter_node
                times.append(self._pair_ns(slot, gpus, link))
            crossing[frozenset(at.of(end.group.node).zone for end in (a, b))] += 1
        for zones, count in crossing.items():
            if len(zones) > 1:
                every, link = (at.degrees(j) for j in at.used), at.zone_link(zones)
                times += [self._pair_ns(slot, slot.width * count, link) for slot in every]
        return max(times)

    def _pair_ns(self, slot: Degrees, gpus: int, link: Link) -> int:
        model = self.at.model
        rows = 128 * slot.tp * ceil(model.sizes.vocabulary_size / (128 * slot.tp))
        size = model.gradient_bytes * model.hidden * rows // slot.tp
        return ns(gpus * size / link.bandwidth_bytes_per_s + 2 * link.latency_s)


@dataclass(frozen=True)
class Messages:
    """Those between the stages of one plan."""

    at: Places

    def time_ns(self, s: int, r: int) -> int:
        at = self.at
        source, target = at.stages[s][r], at.stages[s + 1][r]
        tensors = 2 if at.rows[source.layers[1] - 1].kind == "decoder" else 1
        nodes = source.group.node, target.group.node
        if nodes[0] == nodes[1]:
            sizes = [tensors * self._message_bytes(end.degrees) for end in (source, target)]
            return max(ns(self._inside_s(nodes[0], size)) for size in sizes)
        pairs = [
            (a.group.node, b.group.node)
            for a, b in zip(at.stages[s], at.stages[s + 1], strict=True)
            if a.group.node != b.group.node
        ]
        leaving = sum(a == nodes[0] for a, _ in pairs)
        entering = sum(b == nodes[1] for _, b in pairs)
        links = [at.of(node).inter_node for node in nodes]
        ends = [(source, links[0], leaving), (target, links[1], entering)]
        zones = at.of(nodes[0]).zone, at.of(nodes[1]).zone
        if zones[0] != zones[1]:
            flows = sum((at.of(a).zone, at.of(b).zone) == zones for a, b in pairs)
            link = at.zone_link(frozenset(zones))
            ends += [(source, link, flows), (target, link, flows)]
        both = max(source.degrees.tp, target.degrees.tp)
        widest = both if at.plan.config.per_stage else at.widest.tp
        return max(ns(self._outside_s(*end, tensors, widest)) for end in ends)

    def _message_bytes(self, slot: Degrees) -> int:
        """S of one tensor, on one GPU."""
        parts = slot.tp if self.at.splits(slot.tp) or self.at.instance.search.scatter_gather else 1
        elements = self.at.sequences(slot) * self.at.model.tokens * self.at.model.hidden
        return ceil(elements * self.at.model.element_bytes / (slot.cp * parts))

    def _inside_s(self, node: int, size: float) -> float:
        j = self.at.instance.cluster.node_groups[node]
        slot = next(s.degrees for row in self.at.stages for s in row if s.group.node == node)
        link = self.at.near_tensors(j, slot.tp)
        return size / link.bandwidth_bytes_per_s + link.latency_s

    def _outside_s(self, end: Stage, link: Link, flows: int, tensors: int, widest: int) -> float:
        search, slot = self.at.instance.search, end.degrees
        splits = (self.at.splits(slot.tp) and self.at.splits(widest)) or search.scatter_gather
        size = tensors * self._message_bytes(slot)
        lanes = slot.cp * slot.parts * (slot.tp if splits else widest)
        seconds = size * lanes * flows / link.bandwidth_bytes_per_s + link.latency_s
        if search.scatter_gather and not self.at.splits(slot.tp):
            seconds += (slot.tp - 1) * self._inside_s(end.group.node, size)
        return seconds
