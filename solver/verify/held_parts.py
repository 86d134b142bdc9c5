"""Who holds which part of which tensors under a plan, worked out rank by rank.

A part has three shares: of the experts, of the dimension that tensor parallelism cuts, of another
one that ZeRO cuts among the ranks with the same tensors.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from formulations.instance import Cluster, Workload
from formulations.plan import Plan

Interval = tuple[Fraction, Fraction]
Part = tuple[Interval, Interval, Interval]
Holding = dict[str, list[Part]]  #: by name of the GPU

WHOLE: Interval = (Fraction(0), Fraction(1))


def volume(part: Part) -> Fraction:
    """Share of the tensors."""
    return prod((high - low for low, high in part), start=Fraction(1))


def overlap(one: Part, other: Part) -> Fraction:
    """Share of the tensors that both have."""
    share = Fraction(1)
    for (a, b), (c, d) in zip(reversed(one), reversed(other), strict=True):
        if b <= c or d <= a:
            return Fraction(0)
        share *= min(b, d) - max(a, c)
    return share


@dataclass(frozen=True)
class Sort:
    """Like tensors of a layer: their name, elements, and the layers whose GPUs hold them."""

    what: str
    layer: int
    elements: int
    homes: tuple[int, ...]


def sorts_of(workload: Workload, layer: int, kind: str) -> Iterator[Sort]:
    """What a layer has; a tied matrix is its embedding's, and so are all its gradients."""
    own = workload.layers[layer]
    counts = {
        "matrices": own.sharded_parameters - own.expert_parameters,
        "whole": own.replicated_parameters,
        "experts": own.expert_parameters,
    }
    yield from (Sort(what, layer, count, (layer,)) for what, count in counts.items() if count)
    if own.vocabulary_rows and not own.tied_copy:
        copies = [n for n, other in enumerate(workload.layers) if other.tied_copy]
        homes = (layer, *copies) if layer == 0 and kind == "parameters" else (layer,)
        yield Sort("vocabulary", layer, own.vocabulary_rows * own.vocabulary_columns, homes)


def holding(cluster: Cluster, workload: Workload, plan: Plan, sort: Sort, kind: str) -> Holding:
    """Parts of some tensors by GPU, without those that are empty."""
    found: Holding = {}
    shares = plan.shape.ep if sort.what == "experts" else 1
    splits = plan.shape.zero >= (3 if kind == "parameters" else 1)
    rows = workload.layers[sort.layer].vocabulary_rows
    for home in sort.homes:
        stages = [
            stage
            for replica in plan.replicas
            for stage in replica.stages
            if home in range(*stage.layers)
        ]
        lone = sort.what == "experts" and plan.shape.etp is not None  # each GPU has whole experts
        copies = [
            (stage, n, tp)
            for stage in stages
            for tp in [1 if lone else stage.degrees.tp]
            for n in range(stage.degrees.width // tp)
        ]
        for rank, (stage, n, tp) in enumerate(copies):
            own = range(rank % shares, len(copies), shares)
            split = _piece(own.index(rank), len(own)) if splits else WHOLE
            for t in range(tp):
                cut = WHOLE if sort.what == "whole" else _piece(t, tp)
                if sort.what == "vocabulary":
                    cut = _rows(rows, t, tp)
                part = (_piece(rank % shares, shares), cut, split)
                node = cluster.node_names[stage.group.node]
                parts = found.setdefault(f"{node}:{stage.group.gpus[n * tp + t]}", [])
                if volume(part) and part not in parts:
                    parts.append(part)
    return found


def _piece(index: int, count: int) -> Interval:
    return Fraction(index, count), Fraction(index + 1, count)


def _rows(rows: int, t: int, tp: int) -> Interval:
    """Megatron-LM pads the rows to a multiple of 128 tp; padding is no part of the matrix."""
    each = -(-rows // (128 * tp)) * 128
    return min(Fraction(t * each, rows), Fraction(1)), min(
        Fraction((t + 1) * each, rows), Fraction(1)
    )
