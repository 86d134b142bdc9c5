"""The witness: every split, node order and share of a config, each judged by a plain recursion.

Shares nothing with the planner but layer tables and the words of the specification. Placement
costs are counted slot by slot, flow by flow, in exact fractions.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise, permutations, product
from math import ceil, gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.costs.tables import CostTables
from formulations.decisions import Decisions
from formulations.instance import Instance
from formulations.plan import Degrees
from tests.recursion import moments, stage_ends

Bytes = NDArray[np.int64]

NOISE = Fraction(1, 10**12)  #: the relative excess that rounding up forgives
NS_PER_S = 10**9 * (1 - NOISE)


def up(seconds: Fraction) -> int:
    """Nanoseconds, rounded up."""
    return ceil(seconds * NS_PER_S)


@dataclass(frozen=True)
class Placed:
    """Costs of one node order, ns: send[s] from slot s; sync, gather [k][l]; groups [s]."""

    groups: list[int]
    send: list[dict[int, int]]  #: by slot and number of tensors
    sync: list[list[int]]
    sync_start: list[int]
    gather: list[list[int]]
    gather_start: list[int]
    embedding: int


class Floor:
    """Nodes standing in one order, slot by slot."""

    def __init__(self, tables: CostTables, order: Sequence[int]) -> None:
        self.tables, self.config = tables, tables.config
        nodes = tables.instance.cluster.groups
        self.order = list(order)
        self.node = [
            i
            for i, j in enumerate(order)
            for _ in range(nodes[j].gpus_per_node // self.degrees_of(j)[2])
        ]
        assert len(self.node) == self.config.dp * self.config.pp

    def degrees_of(self, j: int) -> tuple[int, int, int]:
        """GPUs of a tensor group, tensor groups of a slot, GPUs of a slot."""
        own = self.tables.config.degrees[j]
        copies = own.parts * own.cp
        return own.tp, copies, own.tp * copies

    @property
    def widest(self) -> int:
        """The first of the groups with the largest tensor groups."""
        return max(set(self.order), key=lambda j: (self.degrees_of(j)[0], -j))

    def group(self, node: int) -> int:
        """Group of a node of the order."""
        return self.order[node]

    def link(self, node: int, inside: bool) -> tuple[Fraction, Fraction]:
        """Bytes per second and seconds of latency."""
        group = self.tables.instance.cluster.groups[self.group(node)]
        link = group.intra_node if inside else group.inter_node
        return Fraction(link.bandwidth_bytes_per_s), Fraction(link.latency_s)

    def zone(self, node: int) -> str | None:
        """Where a node stands."""
        return self.tables.instance.cluster.groups[self.group(node)].zone

    def zone_link(self, pair: set[str | None]) -> tuple[Fraction, Fraction]:
        """Bytes per second and seconds of latency between two zones."""
        cluster = self.tables.instance.cluster
        links = [own.link for own in cluster.zone_links if set(own.zones) == pair]
        link = links[0] if links else cluster.zone_link
        assert link is not None
        return Fraction(link.bandwidth_bytes_per_s), Fraction(link.latency_s)

    def slots(self, stage: int) -> range:
        """Slots of a stage."""
        return range(stage * self.config.dp, (stage + 1) * self.config.dp)

    def send(self, slot: int, tensors: int) -> int:
        """From a slot to the one that runs the next stage of the same replica, round and round."""
        dp = self.config.dp
        behind = [*self.node[dp:], *self.node[:dp]]
        source, target = self.node[slot], behind[slot]
        speed, latency = self.link(source, inside=True)
        if source == target:
            return up(tensors * self.tables.send_bytes[self.group(source)] / speed + latency)
        flows = [(self.node[s], behind[s]) for s in self.slots(slot // dp)]
        crossing = [(a, b) for a, b in flows if a != b]
        ways = [
            (source, self.link(source, inside=False), sum(a == source for a, _ in crossing)),
            (target, self.link(target, inside=False), sum(b == target for _, b in crossing)),
        ]
        here, there = self.zone(source), self.zone(target)
        if here != there:
            zoned = sum((self.zone(a), self.zone(b)) == (here, there) for a, b in flows)
            ways += [(node, self.zone_link({here, there}), zoned) for node in (source, target)]
        times = []
        for end, (speed, latency), sharing in ways:
            (tp, parts, _), j = self.degrees_of(self.group(end)), self.group(end)
            instance, widest = self.tables.instance, max(self.degrees_of(i)[0] for i in self.order)
            lanes = parts * (tp if all(map(instance.splits_messages, (tp, widest))) else widest)
            size = tensors * self.tables.send_bytes[j]
            seconds = lanes * size * sharing / speed + latency
            if instance.gathers_messages(tp) and tp > 1:
                inner, start = self.link(end, inside=True)
                seconds += (tp - 1) * (size / inner + start)
            times.append(up(seconds))
        return max(times)

    def rings(self, node: int) -> int:
        """Rings of tp ranks that cross a node's border: one per stage partly on it."""
        partly = [
            k
            for k in range(self.config.pp)
            if 0 < sum(self.node[s] == node for s in self.slots(k)) < self.config.dp
        ]
        return self.degrees_of(self.group(node))[0] * len(partly)

    def zone_pairs(self, stage: int) -> list[set[str | None]]:
        """Pairs of zones between which the ring of a stage may pass."""
        visited = sorted({self.zone(self.node[s]) or "" for s in self.slots(stage)})
        return [{one, other} for one, other in combinations(visited, 2)]

    def ring(self, stage: int, factor: Fraction, sizes: Bytes) -> tuple[list[int], int]:
        """Collective over the parts of the replicas of a stage: ns per layer [L, J], and once."""
        members = [self.node[s] for s in self.slots(stage)]
        nodes = sorted(set(members))
        count = len(nodes)
        efficiency = Fraction(self.tables.instance.cluster.efficiency(count))
        share = Fraction(count - 1, count) / efficiency
        inner_start, outer_start = Fraction(0), Fraction(0)
        inner: list[tuple[int, Fraction]] = []  # of a group's buffers, seconds per byte
        outer: list[tuple[int, Fraction]] = []
        for node in nodes:
            j = self.group(node)
            n = members.count(node) * self.degrees_of(j)[1]
            speed, latency = self.link(node, inside=True)
            inner.append((j, Fraction(n - 1, n) / speed))
            inner_start = max(inner_start, (n - 1) * latency)
            speed, latency = self.link(node, inside=False)
            outer.append((j, share * self.rings(node) / speed))
            outer_start = max(outer_start, (count - 1) * latency)
        all_pairs = [pair for k in range(self.config.pp) for pair in self.zone_pairs(k)]
        for pair in self.zone_pairs(stage):
            speed, latency = self.zone_link(pair)
            rings = self.degrees_of(self.widest)[0] * all_pairs.count(pair)
            outer.append((self.widest, share * rings / speed))
            outer_start = max(outer_start, (count - 1) * latency)
        layers = [
            max(up(factor * rate * int(own[j])) for j, rate in inner)
            + max(up(factor * rate * int(own[j])) for j, rate in outer)
            for own in sizes
        ]
        return layers, up(factor * inner_start) + up(factor * outer_start)

    def experts(self, factor: Fraction, size_bytes: int) -> list[int]:
        """Rings of experts that ep GPUs share, ns per layer: the most that any stage may take."""
        groups, ep = sorted(set(self.order)), self.config.ep
        cluster, memory = self.tables.instance.cluster, self.tables.memory
        split = {j: self.config.etp or self.degrees_of(j)[0] for j in groups}
        ranks = {j: cluster.groups[j].gpus_per_node // split[j] for j in groups}
        stage = self.config.dp * self.degrees_of(groups[0])[2] // split[groups[0]]
        copies, sizes = stage // ep, sorted(ranks.values())
        if copies == 1 or not factor:
            return [0] * self.tables.num_layers
        fitting = sizes[0] == sizes[-1] and max(sizes[0], stage) % min(sizes[0], stage) == 0
        most = ceil(Fraction(stage, sizes[0])) if fitting else (stage - 1) // sizes[0] + 2
        nodes = min(copies, most if fitting else min(most, len(self.order)))
        across = Fraction(nodes - 1, nodes) / Fraction(cluster.efficiency(nodes))
        times = []
        for x in range(self.tables.num_layers):
            if not any(memory[j].experts[x] for j in groups):
                times.append(0)
                continue
            inner, outer, starts, delays = [0], [0], [Fraction(0)], [Fraction(0)]
            for j in groups:
                size = size_bytes * int(memory[j].experts[x])
                own = min(copies, ranks[j] // gcd(ep, *sizes))
                near, far = cluster.groups[j].intra_node, cluster.groups[j].inter_node
                rate = Fraction(own - 1, own) / Fraction(near.bandwidth_bytes_per_s)
                inner.append(up(factor * rate * size))
                starts.append((own - 1) * Fraction(near.latency_s))
                lanes = split[j] * min(ep, ranks[j]) * (1 if fitting else 2)
                rate = across * lanes / Fraction(far.bandwidth_bytes_per_s)
                outer.append(up(factor * rate * size))
                delays.append((nodes - 1) * Fraction(far.latency_s))
            for pair in combinations(sorted({cluster.groups[j].zone or "" for j in groups}), 2):
                speed, latency = self.zone_link(set(pair))
                lanes = split[self.widest] * ep * self.config.pp
                size = size_bytes * int(memory[self.widest].experts[x])
                outer.append(up(factor * across * lanes / speed * size))
                delays.append((nodes - 1) * latency)
            start = up(factor * max(starts)) + up(factor * max(delays))
            times.append(max(inner) + max(outer) + start)
        return times

    def embedding(self) -> int:
        """All-reduce between the slots of the first and of the last stage, two ranks each."""
        sizes, dp = self.tables.embedding_bytes, self.config.dp
        if not any(sizes):
            return 0
        ends = [(self.node[r], self.node[(self.config.pp - 1) * dp + r]) for r in range(dp)]
        times = [Fraction(0)]
        for node in set(self.node):
            size, lanes = sizes[self.group(node)], self.degrees_of(self.group(node))[2]
            crossing = sum((a == node) != (b == node) for a, b in ends)
            if crossing:
                speed, latency = self.link(node, inside=False)
                times.append(crossing * lanes * size / speed + 2 * latency)
            if (node, node) in ends:
                speed, latency = self.link(node, inside=True)
                times.append(size / speed + 2 * latency)
        zones = [{self.zone(a), self.zone(b)} for a, b in ends]
        for pair in zones:
            if len(pair) == 2:
                speed, latency = self.zone_link(pair)
                most = max(self.degrees_of(j)[2] * sizes[j] for j in set(self.order))
                times.append(zones.count(pair) * most / speed + 2 * latency)
        return up(max(times))


def place(tables: CostTables, order: Sequence[int]) -> Placed:
    """Costs of one node order, counted from the slots."""
    floor, config = Floor(tables, order), tables.config
    layers = tables.instance.workload.layers
    gradient, gather = tables.gradient_bytes, tables.gather_bytes
    hidden = Fraction(tables.instance.search.overlap.gradient_sync)
    hidden = hidden if config.pp == 1 else min(hidden, Fraction(config.vpp - 1, config.vpp))
    factor = (2, 1, 0, 0)[config.zero] * (1 - hidden)
    synced = [floor.ring(k, factor, gradient) for k in range(config.pp)]
    none = ([0] * len(gather), 0)
    gathers = config.zero in (1, 2)
    gathered = [floor.ring(k, Fraction(1), gather) if gathers else none for k in range(config.pp)]
    workload = tables.instance.workload
    more = floor.experts(factor, workload.gradient_bytes)
    last = floor.experts(Fraction(gathers), workload.parameter_bytes)
    return Placed(
        groups=[floor.group(node) for node in floor.node],
        send=[
            {n: floor.send(s, n) for n in {layer.output_tensors for layer in layers}}
            for s in range(config.dp * (config.pp - (config.vpp == 1)))
        ],
        sync=[[a + b for a, b in zip(own, more, strict=True)] for own, _ in synced],
        sync_start=[start for _, start in synced],
        gather=[[a + b for a, b in zip(own, last, strict=True)] for own, _ in gathered],
        gather_start=[start for _, start in gathered],
        embedding=floor.embedding(),
    )


def options(tables: CostTables, layers: Iterable[int]) -> Iterator[dict[int, int]]:
    """Every choice of a way to recompute for each of some layers, as indices into the ways.

    Chunks that share a device take one for all their blocks.
    """
    own, ways, alike = list(layers), tables.config.recompute, tables.config.vpp > 1
    blocks = [x for x in own if tables.instance.workload.layers[x].is_block]
    for i, way in enumerate(ways):
        counts = range(1, len(blocks) + 1) if way == "full" and i else [len(blocks)]
        for count in counts if "none" in ways and not alike else [len(blocks)]:
            yield {x: i if x in blocks[:count] or ways[0] != "none" else 0 for x in own}


def device_bytes(
    tables: CostTables, stages: Sequence[range], d: int, m: int, ways: dict[int, int], j: int = 0
) -> int:
    """What a GPU of a device on group j holds at its fullest, with these ways to recompute."""
    config, memory = tables.config, tables.memory[j]
    own = [x for layers in stages[d :: config.pp] for x in layers]

    @cache
    def kept(kind: str, s: int) -> int:
        if kind == "B":
            return sum(int(memory.put_off_bytes[x]) for x in stages[s])
        return sum(int(memory.kept[ways[x]].activation_bytes[x]) for x in stages[s])

    need = memory.fixed_bytes + sum(int(memory.static_bytes[x]) for x in own)
    need += max(int(memory.kept[ways[x]].workspace_bytes[x]) for x in own)
    return need + max(
        sum(count * kept(kind, s) for (kind, s), count in counts)
        for counts in held(config.schedule, config.pp, d, m, config.vpp)
    )


@cache
def held(
    schedule: str, p: int, device: int, m: int, v: int
) -> set[tuple[tuple[tuple[str, int], int], ...]]:
    """All that a device keeps at any moment, as often as it has it."""
    moments_ = moments(schedule, p, device, m, v)
    return {tuple(sorted(Counter(kept).items())) for kept in moments_}


def least_bytes(tables: CostTables, chunks: Sequence[tuple[int, int]], d: int, m: int) -> int:
    """What a GPU of a device with these chunks holds if it recomputes so that this is least."""
    stages = [range(0)] * tables.config.num_stages
    stages[d :: tables.config.pp] = [range(*own) for own in chunks]
    own = [x for layers in stages for x in layers]
    return min(device_bytes(tables, stages, d, m, ways) for ways in options(tables, own))


#: What `recomputed_ns` has worked out.
_RECOMPUTED: dict[tuple[Any, ...], tuple[CostTables, list[int] | None]] = {}


def recomputed_ns(
    tables: CostTables, placed: Placed, boundaries: Sequence[int], d: int, r: int, m: int
) -> list[int] | None:
    """Least times of the chunks of a device for what they recompute in a backward pass.

    None without room.
    """
    j = placed.groups[d * tables.config.dp + r]
    key = (id(tables), tuple(boundaries), d, j, m)
    if key not in _RECOMPUTED:
        if len(_RECOMPUTED) > 1 << 14:
            _RECOMPUTED.clear()
        stages = [range(a, b) for a, b in pairwise(boundaries)]
        chunks = stages[d :: tables.config.pp]
        times = [
            [sum(int(tables.recompute_ns[ways[x]][x, j]) for x in layers) for layers in chunks]
            for ways in options(tables, [x for layers in chunks for x in layers])
            if device_bytes(tables, stages, d, m, ways, j) <= tables.capacity_bytes[j]
        ]
        _RECOMPUTED[key] = tables, min(times, default=None, key=sum)  # tables keep their id so
    return _RECOMPUTED[key][1]


def fits(
    tables: CostTables, placed: Placed, boundaries: Sequence[int], shares: Sequence[int]
) -> bool:
    """Whether every GPU holds what it must, however much it recomputes."""
    return all(
        recomputed_ns(tables, placed, boundaries, d, r, m) is not None
        for d, (r, m) in product(range(tables.config.pp), enumerate(shares))
    )


def step_time_ns(
    tables: CostTables, placed: Placed, boundaries: Sequence[int], shares: Sequence[int]
) -> int:
    """Step time of one plan, in memory or not, with as little recomputed as fits."""
    config, pp = tables.config, tables.config.pp
    stages = [range(a, b) for a, b in pairwise(boundaries)]
    devices = [[x for layers in stages[d::pp] for x in layers] for d in range(pp)]

    def on(d: int, r: int, table: NDArray[np.int64], layers: Iterable[int]) -> int:
        j = placed.groups[d * config.dp + r]
        return sum(int(table[x, j]) for x in layers)

    split = tables.weight_ns if config.schedule == "zb-h1" else 0 * tables.weight_ns
    ends = []
    for r, m in enumerate(shares):
        forward, backward, weight = (
            [on(s % pp, r, table, own) for s, own in enumerate(stages)]
            for table in (tables.forward_ns, tables.backward_ns - split, split)
        )
        if len(tables.config.recompute) > 1:
            again = [recomputed_ns(tables, placed, boundaries, d, r, m) for d in range(pp)]
            backward = [
                time + (again[s % pp] or [0] * config.vpp)[s // pp]
                for s, time in enumerate(backward)
            ]
        last = [tables.instance.workload.layers[own[-1]] for own in stages[:-1]]
        send = [
            placed.send[s % pp * config.dp + r][one.output_tensors] for s, one in enumerate(last)
        ]
        blocking = tables.instance.search.blocking_sends
        ends.append(
            stage_ends(
                config.schedule, m, forward, backward, send, blocking, weight=weight, v=config.vpp
            )
        )
    ready = [
        max(column[d] for column in ends)
        + sum(placed.sync[d][x] for x in devices[d])
        + placed.sync_start[d]
        for d in range(pp)
    ]
    if tables.tied:
        ready[0] = ready[-1] = max(ready[0], ready[-1]) + placed.embedding
    return max(
        ready[d]
        + max(on(d, r, tables.optimizer_ns, devices[d]) for r in range(config.dp))
        + sum(placed.gather[d][x] for x in devices[d])
        + placed.gather_start[d]
        for d in range(pp)
    )


def all_orders(tables: CostTables) -> list[tuple[int, ...]]:
    """Every different order of the nodes used, as group indices, that the target runs."""
    nodes = [j for j, count in enumerate(tables.config.nodes_used) for _ in range(count)]
    return [order for order in sorted(set(permutations(nodes))) if _runs(tables, order)]


def _runs(tables: CostTables, order: Sequence[int]) -> bool:
    """Whether the target runs the configuration's degrees on nodes in this order."""
    if tables.instance.search.target != "flagscale":
        return True
    floor, config = Floor(tables, order), tables.config
    slots = [config.degrees[floor.group(node)] for node in floor.node]
    return meshes_run(
        tables.instance, config.zero, [slots[i :: config.dp] for i in range(config.dp)]
    )


def meshes_run(instance: Instance, zero: int, replicas: Sequence[Sequence[Degrees]]) -> bool:
    """Whether the target runs stages of these degrees: all but FlagScale do.

    A mesh has one tp and one dp: all replicas of a stage are alike. Unlike tp need sequence
    parallelism, tied embeddings the same at both ends; with ZeRO 1 one dp there divides the other.
    """
    stages, sizes = [set(stage) for stage in zip(*replicas, strict=True)], replicas[0]
    if instance.search.target != "flagscale" or len(set().union(*stages)) == 1:
        return True
    tied = instance.workload.tied_embeddings and sizes[0].tp != sizes[-1].tp
    few, many = sorted((sizes[0].parts, sizes[-1].parts))
    unlike = {size.tp for size in sizes}
    split = len(unlike) == 1 or all(map(instance.splits_sequence, unlike))
    alike = all(len(stage) == 1 for stage in stages)
    return alike and split and not tied and not (zero and many % few)


def all_splits(tables: CostTables) -> Iterator[tuple[int, ...]]:
    """Every split into non-empty virtual stages with enough blocks."""
    layers = tables.instance.workload.layers
    least = 0 if tables.instance.search.embedding_only_stages else 1
    for cuts in combinations(range(1, len(layers)), tables.config.num_stages - 1):
        boundaries = (0, *cuts, len(layers))
        stages = pairwise(boundaries)
        if all(sum(layer.is_block for layer in layers[a:b]) >= least for a, b in stages):
            yield boundaries


def all_shares(tables: CostTables) -> Iterator[tuple[int, ...]]:
    """Every distribution of the micro-batches that the instance allows."""
    total = tables.instance.workload.global_batch // tables.config.micro_batch
    for shares in product(range(1, total + 1), repeat=tables.config.dp):
        even = len(set(shares)) == 1
        if sum(shares) == total and (even or tables.instance.search.micro_batches == "uneven"):
            yield shares


def all_decisions(tables: CostTables) -> Iterator[Decisions]:
    """Every plan of a configuration, in memory or not."""
    for choice in product(all_orders(tables), all_splits(tables), all_shares(tables)):
        yield Decisions(*choice)


def optimum_ns(
    tables: CostTables,
    orders: Iterable[tuple[int, ...]] | None = None,
    splits: Iterable[tuple[int, ...]] | None = None,
    shares: Iterable[tuple[int, ...]] | None = None,
) -> int | None:
    """Least step time over all that is given (None: everything); None if nothing fits."""
    known_splits = list(all_splits(tables) if splits is None else splits)
    known_shares = list(all_shares(tables) if shares is None else shares)
    best: int | None = None
    for order in all_orders(tables) if orders is None else orders:
        placed = place(tables, order)
        for boundaries, share in product(known_splits, known_shares):
            if fits(tables, placed, boundaries, share):
                found = step_time_ns(tables, placed, boundaries, share)
                best = found if best is None else min(best, found)
    return best
