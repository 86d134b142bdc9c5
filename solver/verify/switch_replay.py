"""What every GPU holds before a switch, what arrives, and what it needs after: layer by layer."""

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import ceil
from typing import NamedTuple

from solver.switch_document import Share, SliceDocument, SwitchDocument
from solver.verify.findings import Findings
from solver.verify.held_parts import (
    Holding,
    Interval,
    Part,
    Sort,
    holding,
    overlap,
    sorts_of,
    volume,
)
from solver.verify.switch_links import Need, Network


class _Arrival(NamedTuple):
    """A slice, and its places in the document."""

    one: SliceDocument
    part: Part
    number: int  #: of the class
    field: str


class Replay:
    """Owners of every class, once `check` has found them."""

    def __init__(self, document: SwitchDocument, findings: Findings) -> None:
        self.document, self.findings = document, findings
        self._owners: dict[int, set[str]] = {}
        self._sources = [{way.source for way in own.sendings} for own in document.classes]
        self._receivers = [
            {gpu for way in own.sendings for gpu in way.receivers} for own in document.classes
        ]

    def check(self) -> None:
        """All layers; those between two edges of stages, of like layers and of slices are alike."""
        document, length = self.document, len(self.document.workload.layers)
        order = sorted(self._edges())
        arriving = self._arriving(order)
        kinds = ("parameters", "gradients") if document.moves == "both" else (document.moves,)
        for layer in order:
            for kind in kinds if layer < length else ():
                for sort in sorts_of(document.workload, layer, kind):
                    self._check_sort(sort, kind, arriving.pop((kind, sort.what, layer), []))
        for kind, what, layer in arriving:
            found = f"{kind}, {what} of layer {layer}"
            self.findings.refuse("classes", found, "tensors that the model has and that move")

    def needs(self, network: Network) -> list[Need]:
        """Classes by the nodes that need them."""
        found = list[Need]()
        for n, own in enumerate(self.document.classes):
            size = sum(one.size_bytes * (one.layers[1] - one.layers[0]) for one in own.slices)
            by_node: dict[str, set[str]] = defaultdict(set)
            for gpu in self._receivers[n]:
                by_node[network.node_of[gpu]].add(gpu)
            owners = frozenset(self._owners[n])
            found += [
                Need(n, owners, node, frozenset(gpus), size) for node, gpus in by_node.items()
            ]
        return found

    def _edges(self) -> set[int]:
        """Layers at which something changes."""
        document, end = self.document, 0
        edges = {edge for own in document.classes for one in own.slices for edge in one.layers}
        for plan in (document.before, document.after):
            edges |= {edge for r in plan.replicas for stage in r.stages for edge in stage.layers}
        for run in document.workload.layer_runs:
            edges |= {end, end + run.count}
            end += run.count
        return edges

    def _arriving(self, order: Sequence[int]) -> dict[tuple[str, str, int], list[_Arrival]]:
        """Slices by kind, tensors and every layer of `order` that they reach over."""
        place = {edge: n for n, edge in enumerate(order)}
        found: dict[tuple[str, str, int], list[_Arrival]] = defaultdict(list)
        for n, own in enumerate(self.document.classes):
            for i, one in enumerate(own.slices):
                arrival = _Arrival(one, part_of(one), n, f"classes[{n}].slices[{i}]")
                for layer in order[place[one.layers[0]] : place[one.layers[1]]]:
                    found[one.kind, one.what, layer].append(arrival)
        return found

    def _check_sort(self, sort: Sort, kind: str, arriving: list[_Arrival]) -> None:
        document, workload = self.document, self.document.workload
        held, wanted = (
            holding(document.cluster, workload, plan, sort, kind)
            for plan in (document.before, document.after)
        )
        parameters = kind == "parameters"
        width = workload.parameter_bytes if parameters else workload.gradient_bytes
        got: Holding = defaultdict(list)
        for one in arriving:
            size = width * ceil(sort.elements * volume(one.part))
            self.findings.equal(f"{one.field}.size_bytes", one.one.size_bytes, size)
            self._check_owners(one, held)
            for gpu in self._receivers[one.number]:
                got[gpu].append(one.part)
        what = f"layer {sort.layer}, {kind}, {sort.what}"
        for gpu in sorted(wanted.keys() | got.keys()):
            self._check_full(gpu, held.get(gpu, []), got.get(gpu, []), wanted.get(gpu, []), what)

    def _check_owners(self, one: _Arrival, held: Holding) -> None:
        """No GPU holds some of a slice; all slices of a class have the same owners, who send."""
        whole = volume(one.part)
        shared = {gpu: sum(overlap(one.part, own) for own in parts) for gpu, parts in held.items()}
        owners = {gpu for gpu, share in shared.items() if share == whole}
        some = sorted(gpu for gpu, share in shared.items() if share and gpu not in owners)
        text = "a part that GPUs hold whole or not at all"
        self.findings.require(not some, one.field, f"one of which {some[:1]} hold some", text)
        known = self._owners.setdefault(one.number, owners)
        text = f"{sorted(known)[:3]}, as of the class"
        self.findings.require(known == owners, one.field, f"owners {sorted(owners)[:3]}", text)
        strange = sorted(self._sources[one.number] - owners)
        text = "sent by GPUs that hold it"
        self.findings.require(not strange, one.field, f"sent by {strange[:3]}", text)

    def _check_full(
        self, gpu: str, held: list[Part], got: list[Part], wanted: list[Part], what: str
    ) -> None:
        """What a GPU needs, it has once; what arrives, it needs and did not have."""
        received = sum(map(volume, got))
        kept = sum(overlap(one, other) for one in held for other in wanted)
        useful = sum(overlap(one, own) for one in got for own in wanted)
        twice = any(overlap(one, other) for one in got for other in held)
        twice |= any(overlap(one, other) for one, other in combinations(got, 2))
        full = useful == received and not twice and kept + received == sum(map(volume, wanted))
        found = f"{float(kept):g} held and {float(received):g} received"
        text = f"{float(sum(map(volume, wanted))):g} of it in all, nothing twice"
        self.findings.require(full, f"{gpu}: {what}", found, text)


def part_of(one: SliceDocument) -> Part:
    """The part that a slice is."""
    return _interval(one.experts), _interval(one.cut), _interval(one.split)


def _interval(share: Share) -> Interval:
    first, end, units = share
    return Fraction(first, units), Fraction(end, units)
