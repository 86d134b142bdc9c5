"""The witness: every split, node order and share of a config, each judged by a plain recursion.

Shares nothing with the planner but its costs of layers and of node orders, which `tests.oracles`
works out again, and the words of the specification.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise, permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.costs.stage_places import placement_of
from formulations.costs.tables import CostTables
from formulations.decisions import Decisions
from formulations.instance import Instance
from formulations.plan import Degrees
from tests.recursion import moments, stage_ends


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


def place(tables: CostTables, order: Sequence[int]) -> Placed:
    """Costs of one node order, or of a layout where tables are by place."""
    costs = placement_of(tables, order)
    by_kind = costs.send_ns.reshape(len(tables.tensors), -1).T.tolist()
    return Placed(
        groups=costs.group_of_slot.tolist(),
        send=[dict(zip(tables.tensors, times, strict=True)) for times in by_kind],
        sync=costs.sync_ns.tolist(),
        sync_start=costs.sync_latency_ns.tolist(),
        gather=costs.gather_ns.tolist(),
        gather_start=costs.gather_latency_ns.tolist(),
        embedding=costs.embedding_ns,
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
        for counts in held(config.schedule, config.pp, d, m, *config.chunking)
    )


@cache
def held(
    schedule: str, p: int, device: int, m: int, v: int, group: int | None
) -> set[tuple[tuple[tuple[str, int], int], ...]]:
    """All that a device keeps at any moment, as often as it has it."""
    moments_ = moments(schedule, p, device, m, v, group)
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
                config.schedule,
                m,
                forward,
                backward,
                send,
                blocking,
                weight=weight,
                v=config.vpp,
                group=config.microbatch_group,
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
    config = tables.config
    slots = [config.degrees[j] for j in order for _ in range(tables.slots_per_node[j])]
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
