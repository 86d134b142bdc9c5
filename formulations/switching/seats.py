"""Which part of which tensors every GPU holds under a plan.

Tensors of a layer that are cut alike count as one: its *matrices*, which tensor parallelism cuts;
what every tensor rank holds *whole* (norms, biases behind a product by rows, routers); its
*experts*; its *vocabulary* matrix, whose rows are padded before they are cut and moved without the
padding. A part of them is a box of three shares: of the experts, of the dimension that tensor
parallelism cuts, and of another dimension, which ZeRO cuts among the ranks with the same tensors,
replica by replica, so that replicas with unlike tensor degrees share it too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import lcm
from typing import Literal, NamedTuple

from formulations.instance import Cluster, Workload
from formulations.instance.workload import padded_vocabulary
from formulations.plan import PARAMETERS_SPLIT, STATES_SPLIT, Plan

#: parameters: every copy that is held; gradients: accumulated ones, as the reduction over the
#: copies leaves them: whole in every copy, or from ZeRO 1 on split among the copies.
Kind = Literal["parameters", "gradients"]
What = Literal["matrices", "whole", "experts", "vocabulary"]
Share = tuple[int, int]  #: from, to


class Grid(NamedTuple):
    """Units in which parts of tensors are counted, along each dimension."""

    experts: int
    cut: int
    split: int


class Box(NamedTuple):
    """A part of tensors: share of the experts, of the dimension that is cut, of another one."""

    experts: Share
    cut: Share
    split: Share


@dataclass(frozen=True, slots=True)
class Seat:
    """One stage of one replica: layers [start, end), and its tensor groups one behind another."""

    layers: tuple[int, int]
    tp: int
    gpus: tuple[int, ...]  #: numbers in the cluster, node by node

    @property
    def copies(self) -> int:
        """Tensor groups: each holds the tensors of the stage."""
        return len(self.gpus) // self.tp


@dataclass(frozen=True, slots=True)
class Layout:
    """All stages of all replicas, ZeRO stage and ranks that share the experts.

    whole_experts: tensor parallelism does not cut them, each GPU is a rank of its own for them.
    """

    seats: tuple[Seat, ...]
    zero: int = 0
    ep: int = 1
    whole_experts: bool = False

    def seats_of(self, tensors: "Tensors") -> list[tuple[Seat, ...]]:
        """Those that hold some tensors, home by home, replica by replica."""
        homes = [
            tuple(one for one in self.seats if one.layers[0] <= home < one.layers[1])
            for home in tensors.homes
        ]
        if tensors.what != "experts" or not self.whole_experts:
            return homes
        return [tuple(Seat(one.layers, 1, one.gpus) for one in seats) for seats in homes]

    def splits(self, kind: Kind) -> bool:
        """Whether copies hold parts: of parameters with ZeRO 3, of gradients with any."""
        return self.zero >= (PARAMETERS_SPLIT if kind == "parameters" else STATES_SPLIT)


@dataclass(frozen=True, slots=True)
class Tensors:
    """What equal layers [start, end) have of one sort; homes: layers whose stages hold it."""

    what: What
    layers: tuple[int, int]
    homes: tuple[int, ...]
    elements: int  #: per layer
    rows: int = 0  #: of a vocabulary matrix


def first_gpus(cluster: Cluster) -> list[int]:
    """Number of every node's first GPU, and at the end that of all GPUs."""
    firsts = [0]
    for j in cluster.node_groups:
        firsts.append(firsts[-1] + cluster.groups[j].gpus_per_node)
    return firsts


def layout_of(cluster: Cluster, plan: Plan) -> Layout:
    """The layout of a plan."""
    first = first_gpus(cluster)
    seats = tuple(
        Seat(
            layers=stage.layers,
            tp=stage.degrees.tp,
            gpus=tuple(first[stage.group.node] + gpu for gpu in stage.group.gpus),
        )
        for replica in plan.replicas
        for stage in replica.stages
    )
    shape = plan.shape
    return Layout(seats, shape.zero, shape.ep, whole_experts=shape.etp is not None)


def tensors_of(workload: Workload, kind: Kind, edges: set[int]) -> Iterator[Tensors]:
    """All tensors of a model, layer run by layer run; no run goes over one of the `edges`.

    Gradients of a tied matrix are those of its embedding, to which its copies have added theirs.
    """
    start, layers = 0, workload.layers
    copies = tuple(n for n, layer in enumerate(layers) if layer.tied_copy)
    for run in workload.layer_runs:
        layer, end = run.layer, start + run.count
        bounds = sorted({start, end, *(edge for edge in edges if start < edge < end)})
        sizes: dict[What, int] = {
            "matrices": layer.sharded_parameters - layer.expert_parameters,
            "whole": layer.replicated_parameters,
            "experts": layer.expert_parameters,
        }
        for a, b in pairwise(bounds):
            yield from (Tensors(what, (a, b), (a,), n) for what, n in sizes.items() if n)
        if layer.vocabulary_rows and not layer.tied_copy:
            homes = (start, *copies) if start == 0 and kind == "parameters" else (start,)
            elements = layer.vocabulary_rows * layer.vocabulary_columns
            yield Tensors("vocabulary", (start, end), homes, elements, layer.vocabulary_rows)
        start = end


def grid_of(layouts: Iterable[Layout], tensors: Tensors) -> Grid:
    """Units in which all parts of some tensors are whole, whether or not copies are split."""
    cuts, ranks, sharing = {1}, {1}, {1}
    for layout in layouts:
        own = layout.ep if tensors.what == "experts" else 1
        sharing.add(own)
        for seats in layout.seats_of(tensors):
            cuts |= {seat.tp for seat in seats}
            ranks |= set(_alike(sum(seat.copies for seat in seats), own))
    cut = {"whole": 1, "vocabulary": tensors.rows}.get(tensors.what, lcm(*cuts))
    return Grid(lcm(*sharing), cut, lcm(*ranks))


def _alike(ranks: int, sharing: int) -> list[int]:
    """Of ranks of which `sharing` share the experts, how many have each set of them."""
    return [len(range(first, ranks, sharing)) for first in range(min(sharing, ranks))]


def holders(layout: Layout, tensors: Tensors, kind: Kind, grid: Grid) -> dict[Box, list[int]]:
    """GPUs by the part of some tensors that they hold."""
    found: dict[Box, list[int]] = {}
    sharing = layout.ep if tensors.what == "experts" else 1
    for seats in layout.seats_of(tensors):
        rank = 0
        alike = _alike(sum(seat.copies for seat in seats), sharing)
        for seat in seats:
            cuts = [_cut(tensors, t, seat.tp, grid.cut) for t in range(seat.tp)]
            for copy in range(seat.copies):
                place, own = divmod(rank, sharing)
                experts = _part(own, sharing, grid.experts)
                share = _part(place, alike[own], grid.split)
                split = share if layout.splits(kind) else (0, grid.split)
                for cut, gpu in zip(cuts, seat.gpus[copy * seat.tp :], strict=False):
                    found.setdefault(Box(experts, cut, split), []).append(gpu)
                rank += 1
    return found


def _part(index: int, count: int, units: int) -> Share:
    return index * units // count, (index + 1) * units // count


def _cut(tensors: Tensors, t: int, tp: int, units: int) -> Share:
    """Share of tensor rank t in the dimension that is cut, without padding."""
    if tensors.what == "whole":
        return 0, units
    if tensors.what != "vocabulary":
        return _part(t, tp, units)
    own = padded_vocabulary(tensors.rows, tp) // tp
    return min(tensors.rows, t * own), min(tensors.rows, (t + 1) * own)
