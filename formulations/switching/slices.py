"""Slices that a switch moves: the cells into which the cuts of both layouts divide every tensor.

Cells that the same GPUs hold before and the same GPUs need after are one class: a class moves as
one run of bytes, slice behind slice, layer behind layer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

from formulations.instance import Workload
from formulations.switching.seats import (
    Box,
    Grid,
    Kind,
    Layout,
    Tensors,
    What,
    grid_of,
    holders,
    tensors_of,
)
from formulations.units import ceil_div

#: A part of some tensors, its owners, and those who need it besides.
Cell = tuple[Box, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Slice:
    """The same part of some tensors of layers [start, end)."""

    kind: Kind
    what: What
    layers: tuple[int, int]
    part: Box
    grid: Grid  #: units of the part
    size_bytes: int  #: per layer, whole elements

    @property
    def total_bytes(self) -> int:
        """Of all its layers."""
        return self.size_bytes * (self.layers[1] - self.layers[0])


@dataclass(frozen=True, slots=True)
class SliceClass:
    """Slices of a kind with the same owners, and GPUs that need them and do not hold them."""

    owners: tuple[int, ...]
    needers: tuple[int, ...]
    slices: tuple[Slice, ...]
    element_bytes: int

    @property
    def size_bytes(self) -> int:
        """Of one copy of all its slices."""
        return sum(one.total_bytes for one in self.slices)


def slice_classes(
    workload: Workload, before: Layout, after: Layout, kinds: Sequence[Kind]
) -> tuple[SliceClass, ...]:
    """Everything that some GPU needs and does not hold, largest class first."""
    edges = {edge for layout in (before, after) for seat in layout.seats for edge in seat.layers}
    classes: list[SliceClass] = []
    both = before, after
    for kind in kinds:
        found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Slice]] = {}
        width = workload.parameter_bytes if kind == "parameters" else workload.gradient_bytes
        known: dict[object, list[Cell]] = {}  # runs of layers that the same stages hold are alike
        for tensors in tensors_of(workload, kind, edges):
            key = tensors.what, *(seats for layout in both for seats in layout.seats_of(tensors))
            grid = grid_of(both, tensors)
            if key not in known:
                sides = (holders(layout, tensors, kind, grid) for layout in both)
                known[key] = list(_cells(*sides))
            for part, owners, needers in known[key]:
                size = width * _elements(tensors, part, grid)
                own = Slice(kind, tensors.what, tensors.layers, part, grid, size)
                found.setdefault((owners, needers), []).append(own)
        classes += (SliceClass(*key, tuple(slices), width) for key, slices in found.items())
    return tuple(sorted(classes, key=lambda one: (-one.size_bytes, one.owners, one.needers)))


def _elements(tensors: Tensors, part: Box, grid: Grid) -> int:
    """Of a part of one layer's tensors, rounded up."""
    volume = prod(high - low for low, high in part)
    return ceil_div(tensors.elements * volume, prod(grid))


def _cells(held: dict[Box, list[int]], wanted: dict[Box, list[int]]) -> Iterable[Cell]:
    """Cells of the grid that all cuts make, with owners and those who need them besides."""
    boxes = [*held, *wanted]
    axes = [sorted({edge for box in boxes for edge in box[axis]}) for axis in range(3)]
    place = [{edge: n for n, edge in enumerate(edges)} for edges in axes]
    shares = [list(pairwise(edges)) for edges in axes]
    cells: dict[tuple[int, ...], tuple[set[int], set[int]]] = {}
    for side, own in enumerate((held, wanted)):
        for box, gpus in own.items():
            covered = (range(at[low], at[high]) for at, (low, high) in zip(place, box, strict=True))
            for cell in product(*covered):
                cells.setdefault(cell, (set(), set()))[side].update(gpus)
    for (i, j, k), (owners, needers) in cells.items():
        if missing := needers - owners:
            part = Box(shares[0][i], shares[1][j], shares[2][k])
            yield part, tuple(sorted(owners)), tuple(sorted(missing))
