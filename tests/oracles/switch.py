"""Who has what of every tensor under a plan, and what a switch moves, rank by rank.

From docs/switching.md alone. A part of a tensor is a box of three shares: of the experts, of the
dimension that tensor parallelism cuts, of another one that ZeRO cuts among ranks with the same.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise, product
from math import ceil, prod
from typing import Literal, NamedTuple

from formulations.instance import Cluster, Workload
from formulations.instance.workload import Layer
from formulations.plan import Plan

Kind = Literal["parameters", "gradients"]
Share = tuple[Fraction, Fraction]
Box = tuple[Share, Share, Share]
Gpu = tuple[int, int]  #: node, and number on it

WHOLE: Share = (Fraction(0), Fraction(1))


class Need(NamedTuple):
    """GPUs of a node that need a class, which the owners have, and its bytes."""

    owners: tuple[str, ...]
    receivers: tuple[str, ...]
    size_bytes: int


def needs(
    cluster: Cluster, workload: Workload, before: Plan, after: Plan, kind: Kind
) -> list[Need]:
    """Slices with the same owners and needers together, node by node."""
    width = workload.parameter_bytes if kind == "parameters" else workload.gradient_bytes
    classes = defaultdict[tuple[tuple[Gpu, ...], tuple[Gpu, ...]], int](int)
    for x, layer in enumerate(workload.layers):
        for what, elements in _tensors(layer):
            ends = [dict(_boxes(workload, plan, x, what, kind)) for plan in (before, after)]
            for volume, owners, needers in _cells(*ends):
                missing = tuple(sorted(needers - owners))
                classes[tuple(sorted(owners)), missing] += width * ceil(elements * volume)

    def named(gpus: Sequence[Gpu]) -> tuple[str, ...]:
        return tuple(f"{cluster.node_names[node]}:{gpu}" for node, gpu in gpus)

    return [
        Need(named(owners), named([gpu for gpu in missing if gpu[0] == node]), size)
        for (owners, missing), size in classes.items()
        for node in sorted({node for node, _ in missing})
    ]


def _tensors(layer: Layer) -> Iterator[tuple[str, int]]:
    """Like tensors of a layer and their elements; the head's tied matrix is its embedding's."""
    yield "matrices", layer.sharded_parameters - layer.expert_parameters
    yield "whole", layer.replicated_parameters
    yield "experts", layer.expert_parameters
    if not layer.tied_copy:
        yield "vocabulary", layer.vocabulary_rows * layer.vocabulary_columns


def _boxes(
    workload: Workload, plan: Plan, x: int, what: str, kind: Kind
) -> Iterator[tuple[Box, set[Gpu]]]:
    """Parts of tensors of a layer, and the GPUs that have each; parameters also of tied copies."""
    boxes = defaultdict[Box, set[Gpu]](set)
    copies = [n for n, layer in enumerate(workload.layers) if layer.tied_copy]
    tied = what == "vocabulary" and x == 0 and kind == "parameters"
    for home in (x, *copies) if tied else (x,):
        for box, gpu in _held(plan, home, what, workload.layers[x].vocabulary_rows, kind):
            if all(begin < end for begin, end in box):
                boxes[box].add(gpu)
    yield from boxes.items()


def _held(plan: Plan, x: int, what: str, rows: int, kind: Kind) -> Iterator[tuple[Box, Gpu]]:
    config = plan.config
    stages = [s for r in plan.replicas for s in r.stages if s.layers[0] <= x < s.layers[1]]
    shares = config.ep if what == "experts" else 1
    splits = config.zero >= (3 if kind == "parameters" else 1)
    alone = what == "experts" and config.etp is not None  # each GPU has whole experts
    groups = [
        (stage.group.node, stage.group.gpus[n : n + tp])
        for stage in stages
        for tp in [1 if alone else stage.degrees.tp]
        for n in range(0, stage.degrees.width, tp)
    ]
    for rank, (node, gpus) in enumerate(groups):
        same = range(rank % shares, len(groups), shares)
        size = len(same) // config.optimizer_instances
        split = _piece(same.index(rank) % size, size) if splits else WHOLE
        for t, gpu in enumerate(gpus):
            cut = WHOLE if what == "whole" else _piece(t, len(gpus))
            if what == "vocabulary":  # padded to a multiple of 128 tp rows, which are no part of it
                each = -(-rows // (128 * len(gpus))) * 128
                begin, end = (min(n * each, rows) for n in (t, t + 1))
                cut = (Fraction(begin, rows or 1), Fraction(end, rows or 1))
            yield (_piece(rank % shares, shares), cut, split), (node, gpu)


def _piece(index: int, count: int) -> Share:
    return Fraction(index, count), Fraction(index + 1, count)


def _cells(
    held: dict[Box, set[Gpu]], wanted: dict[Box, set[Gpu]]
) -> Iterator[tuple[Fraction, set[Gpu], set[Gpu]]]:
    """Of the grid that all cuts make: volume, GPUs that have a cell, those that are to have it."""
    grid = [sorted({e for box in (*held, *wanted) for e in box[axis]}) for axis in range(3)]
    for cell in product(*(pairwise(edges) for edges in grid)):
        owners, needers = (
            {
                gpu
                for box, gpus in boxes.items()
                if all(
                    a <= low and high <= b for (a, b), (low, high) in zip(box, cell, strict=True)
                )
                for gpu in gpus
            }
            for boxes in (held, wanted)
        )
        if needers - owners:
            yield prod((high - low for low, high in cell), start=Fraction(1)), owners, needers
