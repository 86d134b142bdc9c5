"""Whether the slices of a switch are the cells that its plans make, each once, and go where needed.

That is enough: cells do not overlap, all that a GPU holds or needs is made of whole ones, and those
that it needs and does not hold are sent to it, no others.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from solver.switch_document import SliceDocument, SwitchDocument
from solver.verify.findings import Findings
from solver.verify.held_parts import Holdings, Kind
from solver.verify.switch_cells import Cells, cells_between
from solver.verify.switch_links import Network


class _Arrival(NamedTuple):
    """A slice, its class, and its place in the document."""

    one: SliceDocument
    number: int
    field: str


class Replay:
    """The slices of a document, laid on the cells between its plans."""

    def __init__(self, document: SwitchDocument, network: Network, findings: Findings) -> None:
        self.document, self.findings = document, findings
        mask = network.mask
        self._sources = [mask(way.source for way in own.sendings) for own in document.classes]
        self._receivers = [
            mask(gpu for way in own.sendings for gpu in way.receivers) for own in document.classes
        ]

    def check(self, before: Holdings, after: Holdings, kinds: Sequence[Kind]) -> None:
        """All layers; those between two edges of stages, of like layers and of slices are alike."""
        workload = self.document.workload
        edges = {n for own in self.document.classes for one in own.slices for n in one.layers}
        cells = [
            own for kind in kinds for own in cells_between(workload, before, after, kind, edges)
        ]
        arriving = self._arriving(sorted({*edges, *(own.layers[0] for own in cells)}))
        for own in cells:
            self._check(own, arriving.pop((own.kind, own.sort.what, own.layers[0]), []))
        for kind, what, layer in arriving:
            found = f"{kind}, {what} of layer {layer}"
            self.findings.refuse("classes", found, "tensors that the model has and that move")

    def _arriving(self, order: Sequence[int]) -> dict[tuple[str, str, int], list[_Arrival]]:
        """Slices by kind, tensors and every layer of `order` that they reach over."""
        place = {edge: n for n, edge in enumerate(order)}
        found: dict[tuple[str, str, int], list[_Arrival]] = defaultdict(list)
        for n, own in enumerate(self.document.classes):
            for i, one in enumerate(own.slices):
                arrival = _Arrival(one, n, f"classes[{n}].slices[{i}]")
                for layer in order[place[one.layers[0]] : place[one.layers[1]]]:
                    found[one.kind, one.what, layer].append(arrival)
        return found

    def _check(self, cells: Cells, arriving: Sequence[_Arrival]) -> None:
        """Each cell is in a class that its owners send to all who need it and do not hold it."""
        findings, expected = self.findings, {cell.box: cell for cell in cells.cells}
        for one, number, field in arriving:
            part = one.experts, one.cut, one.split
            cell = expected.pop(cells.box_of(part), None)
            if cell is None:
                findings.refuse(field, part, "a part into which the plans cut what moves, once")
                continue
            size = cells.size_bytes(cell.box, self.document.workload)
            findings.equal(f"{field}.size_bytes", one.size_bytes, size)
            held = not self._sources[number] & ~cell.owners
            findings.require(held, field, "sent by others", "sent by GPUs that hold it")
            wanted = self._receivers[number] == cell.missing
            findings.require(wanted, field, "sent to others", "sent to GPUs that lack it, to all")
        what = f"layer {cells.layers[0]}, {cells.kind}, {cells.sort.what}"
        lacking = f"{len(expected)} parts that do not arrive"
        findings.require(not expected, what, lacking, "all that some GPU needs and does not hold")
