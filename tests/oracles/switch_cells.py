"""What moves from one plan to another: the cells into which the cuts of both divide the tensors.

Sets of GPUs are whole numbers with a bit for each, in the order of the cluster.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise, product
from math import lcm, prod
from typing import NamedTuple

from formulations.instance import Workload
from tests.oracles.held_parts import Holding, Holdings, Kind, Part, Sort, sorts_of

Box = tuple[tuple[int, int], ...]  #: from, to, of each of the three shares, in units


class Cell(NamedTuple):
    """A part of some tensors: GPUs that hold it before, and those that need it besides after."""

    box: Box
    owners: int
    missing: int


class Cells(NamedTuple):
    """All cells that some GPU lacks, in the order of those who hold them before."""

    layers: tuple[int, int]
    kind: Kind
    sort: Sort  #: of the first of these layers, which are alike
    units: tuple[int, ...]  #: of each share
    cells: list[Cell]

    def size_bytes(self, box: Box, workload: Workload) -> int:
        """Of one layer, whole elements."""
        width = workload.parameter_bytes if self.kind == "parameters" else workload.gradient_bytes
        volume = prod(end - first for first, end in box)
        return width * -(-self.sort.elements * volume // prod(self.units))

    def box_of(self, part: Part) -> Box:
        """A part in units; nothing where they are not whole."""
        divided = any(
            first * own % units or end * own % units
            for (first, end, units), own in zip(part, self.units, strict=True)
        )
        return () if divided else _scaled(part, self.units)


def cells_between(
    workload: Workload, before: Holdings, after: Holdings, kind: Kind, edges: Iterable[int] = ()
) -> Iterator[Cells]:
    """Cells of all tensors of a kind, run by run of like layers; none goes over an edge."""
    ends = accumulate((run.count for run in workload.layer_runs), initial=0)
    known: dict[tuple[int, int], tuple[tuple[int, ...], list[Cell]]] = {}
    for layers in pairwise(sorted({*ends, *before.edges, *after.edges, *edges})):
        for sort in sorts_of(workload, layers[0], kind):
            held, wanted = before.of(sort, kind), after.of(sort, kind)
            key = id(held), id(wanted)  # both are kept by the holdings
            if key not in known:
                known[key] = _overlaid(held, wanted)
            yield Cells(layers, kind, sort, *known[key])


def _overlaid(held: Holding, wanted: Holding) -> tuple[tuple[int, ...], list[Cell]]:
    """Units, and cells of the grid that all cuts make."""
    units = tuple(lcm(*{part[axis][2] for part in (*held, *wanted)}) for axis in range(3))
    scaled = [
        [(_scaled(part, units), gpus) for part, gpus in own.items()] for own in (held, wanted)
    ]
    boxes = [box for own in scaled for box, _ in own]
    cuts = [sorted({edge for box in boxes for edge in box[axis]}) for axis in range(3)]
    place = [{edge: n for n, edge in enumerate(own)} for own in cuts]
    shares = [list(pairwise(own)) for own in cuts]
    owners, needers = (dict[Box, int]() for _ in range(2))
    for own, found in zip(scaled, (owners, needers), strict=True):
        for box, gpus in own:
            inside = zip(shares, place, box, strict=True)
            for cell in product(*(all_[at[low] : at[high]] for all_, at, (low, high) in inside)):
                found[cell] = found.get(cell, 0) | gpus
    missing = {cell: needers.get(cell, 0) & ~gpus for cell, gpus in owners.items()}
    return units, [Cell(cell, owners[cell], gpus) for cell, gpus in missing.items() if gpus]


def _scaled(part: Part, units: tuple[int, ...]) -> Box:
    pairs = zip(part, units, strict=True)
    return tuple((first * own // of, end * own // of) for (first, end, of), own in pairs)
