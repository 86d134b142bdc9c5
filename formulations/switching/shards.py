"""Which part of which tensors every GPU holds under a plan, and the slices that a switch moves.

Tensors of a layer that are cut alike count as one: its *matrices*, which tensor parallelism cuts;
what every tensor rank holds *whole* (norms, biases behind a product by rows, routers); its
*experts*; its *vocabulary* matrix, whose rows are padded before they are cut and moved without the
padding. A part of them is a box of three shares: of the experts, of the dimension that tensor
parallelism cuts, and of another dimension, which ZeRO cuts among the ranks with the same tensors,
replica by replica, so that replicas with unlike tensor degrees share it too.

Slices are the cells into which the cuts of both layouts divide every tensor. Cells that the same
GPUs hold before and the same GPUs need after are one class: a class moves as one run of bytes,
slice behind slice, layer behind layer.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import lcm, prod
from typing import Literal, NamedTuple

from formulations.instance import Cluster, Workload
from formulations.instance.record import Bytes, Count, Index
from formulations.instance.workload import padded_vocabulary
from formulations.lengths.problem import STRICT
from formulations.plan import PARAMETERS_SPLIT, STATES_SPLIT, Plan
from formulations.units import ceil_div

#: parameters: every copy that is held; gradients: accumulated ones, as the reduction over the
#: copies leaves them: whole in every copy, or from ZeRO 1 on split among the copies.
Kind = Literal["parameters", "gradients"]
What = Literal["matrices", "whole", "experts", "vocabulary"]
Share = tuple[int, int]  #: from, to
Part = tuple[Index, Index, Count]  #: from, to, of so many equal parts
#: A part of some tensors, its owners, and those who need it besides.
Cell = tuple["Box", tuple[int, ...], tuple[int, ...]]


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
    instances: shard groups, see `Configuration.optimizer_instances`.
    """

    seats: tuple[Seat, ...]
    zero: int = 0
    ep: int = 1
    whole_experts: bool = False
    instances: int = 1

    def seats_of(self, tensors: "Tensors") -> list[tuple[Seat, ...]]:
        """Those that hold some tensors, home by home, replica by replica."""
        homes = [
            tuple(seat for seat in self.seats if seat.layers[0] <= home < seat.layers[1])
            for home in tensors.homes
        ]
        if tensors.what != "experts" or not self.whole_experts:
            return homes
        return [tuple(Seat(seat.layers, 1, seat.gpus) for seat in seats) for seats in homes]

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
    config = plan.config
    instances = config.optimizer_instances
    return Layout(seats, config.zero, config.ep, config.etp is not None, instances)


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
        ep = layout.ep if tensors.what == "experts" else 1
        sharing.add(ep)
        for seats in layout.seats_of(tensors):
            cuts |= {seat.tp for seat in seats}
            ranks |= set(_alike(sum(seat.copies for seat in seats), ep))
    cut = {"whole": 1, "vocabulary": tensors.rows}.get(tensors.what, lcm(*cuts))
    return Grid(lcm(*sharing), cut, lcm(*ranks))


def _alike(ranks: int, sharing: int) -> list[int]:
    """Of ranks of which `sharing` share the experts, how many have each set of them."""
    return [len(range(first, ranks, sharing)) for first in range(min(sharing, ranks))]


def holders(layout: Layout, tensors: Tensors, kind: Kind, grid: Grid) -> dict[Box, list[int]]:
    """GPUs by the part of some tensors that they hold."""
    boxes: dict[Box, list[int]] = {}
    sharing = layout.ep if tensors.what == "experts" else 1
    for seats in layout.seats_of(tensors):
        rank = 0
        alike = _alike(sum(seat.copies for seat in seats), sharing)
        for seat in seats:
            cuts = [_cut(tensors, t, seat.tp, grid.cut) for t in range(seat.tp)]
            for copy in range(seat.copies):
                place, expert_rank = divmod(rank, sharing)
                experts = _part(expert_rank, sharing, grid.experts)
                size = alike[expert_rank] // layout.instances
                share = _part(place % size, size, grid.split)
                split = share if layout.splits(kind) else (0, grid.split)
                for cut, gpu in zip(cuts, seat.gpus[copy * seat.tp :], strict=False):
                    boxes.setdefault(Box(experts, cut, split), []).append(gpu)
                rank += 1
    return boxes


def _part(index: int, count: int, units: int) -> Share:
    return index * units // count, (index + 1) * units // count


def _cut(tensors: Tensors, t: int, tp: int, units: int) -> Share:
    """Share of tensor rank t in the dimension that is cut, without padding."""
    if tensors.what == "whole":
        return 0, units
    if tensors.what != "vocabulary":
        return _part(t, tp, units)
    rows = padded_vocabulary(tensors.rows, tp) // tp
    return min(tensors.rows, t * rows), min(tensors.rows, (t + 1) * rows)


@dataclass(frozen=True, slots=True)
class Slice:
    """The same part of like tensors of layers [start, end).

    experts: which of them; cut: of the dimension that tensor parallelism cuts, of a vocabulary
    matrix its rows; split: of another dimension, which ZeRO cuts. size_bytes: per layer, whole
    elements.
    """

    __pydantic_config__ = STRICT

    kind: Kind
    what: What
    layers: tuple[Index, Index]
    experts: Part
    cut: Part
    split: Part
    size_bytes: Bytes


@dataclass(frozen=True, slots=True)
class SliceClass:
    """Slices of a kind with the same owners, and GPUs that need them and do not hold them."""

    __pydantic_config__ = STRICT

    owners: tuple[Index, ...]
    needers: tuple[Index, ...]
    slices: tuple[Slice, ...]
    element_bytes: Count

    @property
    def size_bytes(self) -> int:
        """Of one copy of all its slices, of all their layers."""
        return sum(piece.size_bytes * len(range(*piece.layers)) for piece in self.slices)


def slice_classes(
    workload: Workload, before: Layout, after: Layout, kinds: Sequence[Kind]
) -> tuple[SliceClass, ...]:
    """Everything that some GPU needs and does not hold, largest class first."""
    edges = {edge for layout in (before, after) for seat in layout.seats for edge in seat.layers}
    classes: list[SliceClass] = []
    both = before, after
    for kind in kinds:
        pieces: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Slice]] = {}
        width = workload.parameter_bytes if kind == "parameters" else workload.gradient_bytes
        cells: dict[object, list[Cell]] = {}  # runs of layers that the same stages hold are alike
        for tensors in tensors_of(workload, kind, edges):
            key = tensors.what, *(seats for layout in both for seats in layout.seats_of(tensors))
            grid = grid_of(both, tensors)
            if key not in cells:
                sides = (holders(layout, tensors, kind, grid) for layout in both)
                cells[key] = list(_cells(*sides))
            for part, owners, needers in cells[key]:
                volume = prod(high - low for low, high in part)
                size = width * ceil_div(tensors.elements * volume, prod(grid))
                experts, cut, split = (
                    (low, high, units) for (low, high), units in zip(part, grid, strict=True)
                )
                piece = Slice(kind, tensors.what, tensors.layers, experts, cut, split, size)
                pieces.setdefault((owners, needers), []).append(piece)
        classes += (SliceClass(*key, tuple(slices), width) for key, slices in pieces.items())
    return tuple(sorted(classes, key=lambda c: (-c.size_bytes, c.owners, c.needers)))


def _cells(owned: dict[Box, list[int]], needed: dict[Box, list[int]]) -> Iterable[Cell]:
    """Cells of the grid that all cuts make, with owners and those who need them besides."""
    boxes = [*owned, *needed]
    axes = [sorted({edge for box in boxes for edge in box[axis]}) for axis in range(3)]
    place = [{edge: n for n, edge in enumerate(edges)} for edges in axes]
    shares = [list(pairwise(edges)) for edges in axes]
    cells: dict[tuple[int, ...], tuple[set[int], set[int]]] = {}
    for side, boxes_of in enumerate((owned, needed)):
        for box, gpus in boxes_of.items():
            covered = (range(at[low], at[high]) for at, (low, high) in zip(place, box, strict=True))
            for cell in product(*covered):
                cells.setdefault(cell, (set(), set()))[side].update(gpus)
    for (i, j, k), (owners, needers) in cells.items():
        if missing := needers - owners:
            part = Box(shares[0][i], shares[1][j], shares[2][k])
            yield part, tuple(sorted(owners)), tuple(sorted(missing))
