"""What communication and optimizer cost at least, whatever the node order: many configs at once.

Slots are in node order; a node of group j covers c_j of them in a row, stage k of
replica r has slot k dp + r. Borders of nodes and of stages lie at multiples of q, the greatest
common divisor of dp and the c_j of the groups used. Every figure is one of `formulations.costs`
with the least that its unknowns can be, rounded up like that one. Links between zones, which only
add to a cost, are left out. Times are whole ns, as floats.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formulations.costs.collectives import ALL_REDUCE, ring_share
from formulations.costs.memory import layer_parameters
from formulations.costs.sharding import epilogue_factors, expert_rings_ns
from formulations.costs.tables import embedding_bytes, send_bytes
from formulations.instance import Instance
from formulations.instance.machines import Link
from formulations.plan import Configuration
from formulations.units import NANOSECONDS_PER_SECOND
from solver.graph.problem import Array, Mask, Numbers

#: Twice the relative float noise that rounding up forgives.
NOISE = 2e-12


def at_least_ns(seconds: Numbers) -> Numbers:
    """Nanoseconds, rounded up where it is sure that the cost is."""
    return np.ceil(seconds * (NANOSECONDS_PER_SECOND * (1 - NOISE)))


class ConfigColumns:
    """N configurations, field by field. J node groups, U runs of equal layers.

    dp, shard, pp, ep: [N]; shard: replicas of a shard group, ep: GPUs that share the experts.
    splits: [N] whether ZeRO splits anything. nodes: [N, J] nodes used. used: [N, J] whether there
    are any. tp: [N, J] GPUs of a tensor group. copies: [N, J] tensor groups of a slot. width:
    [N, J] GPUs of a slot. per_node: [N, J] slots of a node, c_j; slots: of all nodes used; 0 if
    none is. common: [N] q, see the module. total: [N] micro-batches of a step. etp_whole: [N]
    whether each GPU of a tensor group has experts whole. sync, gather: [N] `epilogue_factors`.
    """

    def __init__(self, instance: Instance, configs: Sequence[Configuration]) -> None:
        self.instance, self.configs = instance, configs
        rows = [(c.dp, c.shard_replicas, c.pp, c.micro_batch, c.ep) for c in configs]
        figures = np.array(rows, dtype=np.int64).T
        self.dp, self.shard, self.pp, micro_batch, self.ep = figures
        self.total: Array = instance.workload.global_batch // micro_batch
        self.nodes = np.array([config.nodes_used for config in configs], dtype=np.int64)
        self.used: Mask = self.nodes > 0
        # Groups that are not used have the degrees of one that is.
        pairs = [
            [(group_degrees.tp, group_degrees.copies) for group_degrees in config.degrees]
            for config in configs
        ]
        degrees = np.array(pairs, dtype=np.int64).transpose(2, 0, 1)
        first = np.argmax(self.used, axis=1)
        usual = degrees[:, np.arange(len(configs)), first][..., None]
        self.tp, self.copies = np.where(self.used, degrees, usual)
        self.width = self.tp * self.copies
        gpus = np.array([group.gpus_per_node for group in instance.cluster.groups])
        self.per_node = np.where(self.used, gpus // self.width, 0)
        self.slots = self.nodes * self.per_node
        self.common = np.gcd(self.dp, np.gcd.reduce(self.per_node, axis=1))
        self.etp_whole = np.array([config.etp is not None for config in configs])
        self.splits: Mask = np.array([config.splits.states for config in configs])
        factors = [epilogue_factors(config, instance.search.overlap) for config in configs]
        self.sync, self.gather = np.array(factors, dtype=np.float64).T

    def alike(self, *columns: Array | Mask | Numbers) -> tuple[list[Configuration], Array]:
        """One configuration each of those that share degrees and agree in these columns [N].

        And [N] which of them it is.
        """
        numbers: dict[tuple[object, ...], int] = {}
        keys = zip(
            (tuple(map(id, config.degrees)) for config in self.configs),
            *(column.tolist() for column in columns),
            strict=True,
        )
        which = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
        firsts = np.searchsorted(np.maximum.accumulate(which), np.arange(len(numbers)))
        return [self.configs[i] for i in firsts.tolist()], which

    def least(self, values: Numbers) -> Numbers:
        """[N] least of values [J] or [N, J] over the groups used."""
        minima: Numbers = np.where(self.used, values, np.inf).min(axis=1)
        return minima

    def links(self, inside: bool) -> tuple[Numbers, Numbers]:
        """[J] seconds per byte, latency of the links inside or out of the nodes."""
        groups = self.instance.cluster.groups
        links: list[Link] = [group.intra_node if inside else group.inter_node for group in groups]
        return (
            np.array([1 / link.bandwidth_bytes_per_s for link in links]),
            np.array([link.latency_s for link in links]),
        )


def send_ns(columns: ConfigColumns) -> Numbers:
    """[N] all pp - 1 transfers of one micro-batch through one replica, one way.

    Proof. Slots of one replica are dp apart, so a node has ceil(c_j / dp) of its stages at most
    and one transfer less inside. The others cross a border; a shift by dp slots moves whole
    blocks of q slots, which stand on one node each: at least q replicas cross together.
    """
    instance, boundaries = columns.instance, columns.pp - 1
    configs, which = columns.alike(columns.total)
    sizes = [
        [send_bytes(instance, degrees, config.micro_batch) for degrees in config.degrees]
        for config in configs
    ]
    size = np.array(sizes)[which]
    visits = -(-columns.per_node // columns.dp[:, None])
    inside = np.minimum(boundaries, (columns.nodes * np.maximum(visits - 1, 0)).sum(axis=1))
    per_byte, latency = columns.links(inside=True)
    within = size * per_byte + latency
    per_byte, latency = columns.links(inside=False)
    widest = np.where(columns.used, columns.tp, 0).max(axis=1)[:, None]
    # as `Instance.splits_messages` and `message_lanes`, for [N, J] tensor groups at once
    search, scattered = instance.search, instance.search.scatter_gather
    split, split_by_widest = (
        search.sequence_parallel & (search.split_tokens % tp == 0) for tp in (columns.tp, widest)
    )
    lanes = np.where(scattered | (split & split_by_widest), columns.tp, widest)
    flows = lanes * columns.copies * columns.common[:, None]
    gathers = (columns.tp - 1) * (scattered & ~split)
    crossing = at_least_ns(columns.least(flows * size * per_byte + latency + within * gathers))
    easiest = np.minimum(crossing, at_least_ns(columns.least(within)))
    sends: Numbers = (boundaries - inside) * crossing + inside * easiest
    return sends


def tied_ns(columns: ConfigColumns) -> Numbers:
    """[N] all-reduce of tied embeddings; 0 if there is none.

    Proof. The two slots of a replica are (pp - 1) dp apart, so on two nodes unless one has more
    slots than that; then q replicas at least cross its border together, see `send_ns`.
    """
    instance = columns.instance
    configs, which = columns.alike(columns.pp > 1)
    sizes = [
        [embedding_bytes(instance, group_degrees.tp, config.pp) for group_degrees in config.degrees]
        for config in configs
    ]
    size = np.array(sizes)[which]
    share = ring_share(ALL_REDUCE, 2) * size
    per_byte, latency = columns.links(inside=False)
    lanes = columns.width * columns.common[:, None]
    outside = lanes * share * per_byte + ALL_REDUCE * latency
    per_byte, latency = columns.links(inside=True)
    near = columns.per_node > ((columns.pp - 1) * columns.dp)[:, None]
    inside = np.where(near, share * per_byte + ALL_REDUCE * latency, np.inf)
    cheaper = at_least_ns(columns.least(np.minimum(outside, inside)))
    return np.where(size.max(axis=1) > 0, cheaper, 0.0)


@dataclass(frozen=True)
class Rings:
    """Numbers n of nodes that a stage may lie on, K of them per configuration, and their rings.

    possible: [N, K]. inside_s: [N, K] seconds per byte for factor 1. inside_start_s,
    outside_start_s: [N, K] latencies for factor 1. with_group, outside_s: [J, N, K] whether a stage
    with a node of the group may lie on n, and seconds per byte between its nodes.

    Proof. A stage lies on n nodes in a row with n >= dp / largest c_j. If dp = q it lies on one.
    Else all but the first and the last are covered whole, with the least c_j each at least, and
    those two with q each: (n - 2) least c_j + 2 q <= dp. If all c_j are q, all are covered whole.
    One of them holds ceil(dp / n) slots or more. The costs take the slowest node for each term: of
    n nodes, whichever they are, one is no faster than the n-th fastest of all that are used, and
    likewise for those that are covered whole. If n > 1, the rings of the stage cross each border.
    With a node of group j they cross that one's, and the other nodes hold dp - c_j slots or more:
    n >= 1 + (dp - c_j) / largest c. A single stage lies on all nodes. Where groups differ in their
    degrees, buffers are as small as on any of them, lanes as few, and a slot has as few parts;
    outside_s is for `lanes` of them. Of several shard groups each is as a stage of so many
    replicas, and a stage with a node of a group has one with it; what they all-reduce besides is
    left out.
    """

    possible: Mask
    with_group: Mask
    inside_s: Numbers
    outside_s: Numbers
    inside_start_s: Numbers
    outside_start_s: Numbers


def rings(columns: ConfigColumns) -> Rings:
    """The rings of one shard group: of all of a stage's replicas, unless they are in several."""
    dp, single = columns.shard, (columns.pp == 1) & (columns.shard == columns.dp)
    shared = np.gcd(dp, columns.common)
    largest = columns.per_node.max(axis=1)
    smallest = np.where(columns.used, columns.per_node, largest[:, None]).min(axis=1)
    low = -(-dp // largest)
    most_nodes = np.minimum(2 + (dp - 2 * shared) // smallest, columns.nodes.sum(axis=1))
    high = np.where(dp == shared, 1, np.maximum(low, most_nodes))
    all_nodes = columns.nodes.sum(axis=1)
    low, high = (np.where(single, all_nodes, x) for x in (low, high))
    n = low[:, None] + np.arange(int((high - low).max()) + 1)
    covered_whole = np.where((shared == largest)[:, None], n, np.maximum(n - 2, 0))
    members = -(-dp[:, None] // n) * columns.copies.min(axis=1)[:, None]
    ranks = columns.per_node * columns.copies
    per_byte, latency = columns.links(inside=True)
    ring = per_byte * (ranks - 1) / np.maximum(ranks, 1)
    fastest = columns.least(per_byte)[:, None] * (members - 1) / members
    network = columns.instance.cluster.efficiency
    efficiency = np.array([1.0, *(network(i) for i in range(1, int(n.max()) + 1))])[n]
    outer_s, outer_latency = columns.links(inside=False)
    slowest = np.maximum(_nth_least(columns, outer_s, n), outer_s[:, None, None])
    outside = columns.tp.min(axis=1)[:, None] * slowest
    possible = n <= high[:, None]
    others = -(-np.maximum(dp[:, None] - columns.per_node, 0) // largest[:, None])
    return Rings(
        possible=possible,
        with_group=possible & ((n >= 1 + others.T[:, :, None]) | ~columns.used.T[:, :, None]),
        inside_s=np.maximum(fastest, _nth_least(columns, ring, covered_whole)),
        outside_s=outside * (n - 1) / n / efficiency,
        inside_start_s=columns.least(latency)[:, None] * (members - 1),
        outside_start_s=_nth_least(columns, outer_latency, n) * (n - 1),
    )


def _nth_least(columns: ConfigColumns, values: Numbers, n: Array) -> Numbers:
    """[N, K] n-th least of values [J] or [N, J] over the nodes, if they are that many; 0 for 0."""
    each = np.where(columns.used, values, np.inf)
    order = np.argsort(each, axis=1, kind="stable")
    counted = np.cumsum(np.take_along_axis(columns.nodes, order, axis=1), axis=1)
    position = (counted[:, None, :] < np.minimum(n, counted[:, -1:])[:, :, None]).sum(axis=2)
    nth = np.take_along_axis(np.take_along_axis(each, order, axis=1), position, axis=1)
    return np.where(n > 0, nth, 0.0)


def tails(columns: ConfigColumns) -> tuple[Numbers, Numbers]:
    """Least of what follows the last backward of a stage: gradient sync, optimizer, gather.

    [N, U, J] for one layer of the run, of a stage with a node of the group, and [N] once. The
    optimizer is that of any one replica, the slowest counts.

    Proof: see `Rings`; sync and gather are taken at their least number of nodes each.
    """
    workload, stage_rings = columns.instance.workload, rings(columns)
    parameters, experts = _parameters(columns)
    size = workload.gradient_bytes * parameters
    layers, start = _collective(columns, stage_rings, columns.sync, size)
    if columns.gather.any():
        size = workload.parameter_bytes * parameters
        gather, gather_start = _collective(columns, stage_rings, columns.gather, size)
        layers, start = layers + gather, start + gather_start
    touched = workload.gradient_bytes + 2 * workload.optimizer_bytes + workload.parameter_bytes
    copies, split = columns.copies, columns.splits[:, None]
    ranks = columns.dp[:, None] * copies
    shards = np.where(split, columns.shard[:, None] * copies, 1)[:, None]
    speed = [g.gpu.memory_bandwidth_bytes_per_s for g in columns.instance.cluster.groups]
    grid = np.where(columns.etp_whole[:, None], ranks * columns.tp, ranks)
    sharers = np.maximum(1, np.where(split, grid, 1)[:, None] // columns.ep[:, None, None])
    sizes = touched * (-(-parameters // shards) - (-experts // sharers))
    optimizer = at_least_ns(sizes / np.array(speed))
    return layers + _expert_rings(columns)[:, :, None] + optimizer, start


def _parameters(columns: ConfigColumns) -> tuple[Array, Array]:
    """[N, U, J] parameters of one layer per GPU: of all replicas alike, of experts."""
    workload, groups = columns.instance.workload, range(len(columns.instance.cluster.groups))
    configs, which = columns.alike(columns.pp > 1, columns.ep, columns.etp_whole)
    rows = [[layer_parameters(workload, config, j) for j in groups] for config in configs]
    per_gpu = np.array(rows, dtype=np.int64)[which].transpose(2, 0, 3, 1)
    return per_gpu[0], per_gpu[1]


def _expert_rings(columns: ConfigColumns) -> Array:
    """[N, U] ns of the rings of experts that ep GPUs share: the same for all node orders."""
    workload, experts = columns.instance.workload, _parameters(columns)[1]
    figures = columns.dp, columns.pp, columns.ep, columns.etp_whole
    configs, which = columns.alike(*figures, columns.sync, columns.gather, *columns.nodes.T)
    firsts = np.unique(which, return_index=True)[1]
    rings = np.zeros((len(configs), len(workload.layer_runs)), dtype=np.int64)
    for n, (config, i) in enumerate(zip(configs, firsts.tolist(), strict=True)):
        if config.has_expert_grid:
            factors = columns.sync[i], columns.gather[i]
            sizes = workload.gradient_bytes, workload.parameter_bytes
            rings[n] = sum(
                expert_rings_ns(columns.instance, config, factor, size * experts[i])
                for factor, size in zip(factors, sizes, strict=True)
            )
    return rings[which]


def _collective(
    columns: ConfigColumns, stage_rings: Rings, factor: Array | Numbers, sizes: Array
) -> tuple[Numbers, Numbers]:
    """[N, U, J] rings for sizes [N, U, J] in bytes, [N] their start; factor: [N]."""
    used, tp = columns.used[:, None, :], columns.tp[:, None, :]
    least_bytes = np.where(used, sizes.astype(np.float64), np.inf).min(axis=2)
    lanes = np.where(used, (sizes * tp).astype(np.float64), np.inf).min(axis=2)
    each = factor[:, None, None] * least_bytes[:, None, :]
    across = factor[:, None, None] * (lanes / columns.tp.min(axis=1)[:, None])[:, None, :]
    inside = at_least_ns(each * stage_rings.inside_s[:, :, None])
    layers = [
        np.where(possible[:, :, None], inside + at_least_ns(across * outside[:, :, None]), np.inf)
        for possible, outside in zip(stage_rings.with_group, stage_rings.outside_s, strict=True)
    ]
    start = at_least_ns(factor[:, None] * stage_rings.inside_start_s)
    start = start + at_least_ns(factor[:, None] * stage_rings.outside_start_s)
    return (
        np.stack([times_ns.min(axis=1) for times_ns in layers], axis=2),
        np.where(stage_rings.possible, start, np.inf).min(axis=1),
    )
