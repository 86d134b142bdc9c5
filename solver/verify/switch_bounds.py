"""How long a switch takes at least and at most, from its two plans alone: no file, no planner.

What moves are cells: the parts into which the cuts of both plans divide the tensors of a layer, in
whole elements. Cells with the same owners and the same GPUs that need them are one class.
"""

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, product
from math import ceil, prod
from typing import Literal

from formulations.instance import Cluster, Workload
from formulations.plan import Plan
from solver.verify.held_parts import Holding, holding, sorts_of
from solver.verify.switch_links import Line, Need, Network
from solver.verify.switch_rule import LayerSlices, rule_hops

Kind = Literal["parameters", "gradients"]
Gpus = tuple[int, ...]  #: by place in the cluster
Cell = tuple[Fraction, Gpus, Gpus]  #: share of the tensors, owners, those who need it besides


def switch_bounds(
    cluster: Cluster, workload: Workload, before: Plan, after: Plan, kind: Kind
) -> tuple[int, int]:
    """What no switch plan goes below, and what that of the published rule takes, ns.

    Of two plans that `check_plan` accepts; 0 and 0 where nothing moves.
    """
    return SwitchBounds(cluster, workload).of(before, after, kind)


class SwitchBounds:
    """Bounds of the switches of one model on some machines."""

    def __init__(self, cluster: Cluster, workload: Workload) -> None:
        self._cluster, self._workload = cluster, workload
        self._network = Network(cluster)
        self._names = list(self._network.node_of)
        self._place = {gpu: n for n, gpu in enumerate(self._names)}

    def of(self, before: Plan, after: Plan, kind: Kind) -> tuple[int, int]:
        """As `switch_bounds`."""
        network, classes = self._network, self._classes(before, after, kind)
        needs = [need for n, own in enumerate(classes) for need in self._needs(n, *own)]
        start_ns = network.start_ns(needs)
        slices = [own for _, _, own in classes]
        rule_ns = network.busiest_ns(rule_hops(slices, needs, network))
        return ceil(_forced_ns(needs, network)) + start_ns, ceil(rule_ns) + start_ns

    def _classes(
        self, before: Plan, after: Plan, kind: Kind
    ) -> list[tuple[Gpus, Gpus, list[LayerSlices]]]:
        """Owners, needers and slices of each: the largest first, as the rule goes through them."""
        workload, found = self._workload, defaultdict[tuple[Gpus, Gpus], list[LayerSlices]](list)
        width = workload.parameter_bytes if kind == "parameters" else workload.gradient_bytes
        for layers in pairwise(sorted(self._edges(before, after))):
            for sort in sorts_of(workload, layers[0], kind):
                held, wanted = (
                    holding(self._cluster, workload, plan, sort, kind) for plan in (before, after)
                )
                for share, *gpus in self._cells(held, wanted):
                    size = width * ceil(sort.elements * share)
                    found[gpus[0], gpus[1]].append((layers, size))
        classes = [(*key, own) for key, own in found.items()]
        return sorted(classes, key=lambda one: (-_copy_bytes(one[2]), one[0], one[1]))

    def _edges(self, before: Plan, after: Plan) -> set[int]:
        """Layers at which something changes, and the end."""
        found, end = {0}, 0
        for plan in (before, after):
            found |= {edge for r in plan.replicas for stage in r.stages for edge in stage.layers}
        for run in self._workload.layer_runs:
            end += run.count
            found.add(end)
        return found

    def _cells(self, held: Holding, wanted: Holding) -> Iterator[Cell]:
        """In the order of the parts held, those that some GPU needs and does not hold."""
        sides = (
            [(self._place[gpu], parts) for gpu, parts in held.items()],
            [(self._place[gpu], parts) for gpu, parts in wanted.items()],
        )
        every = [part for side in sides for _, parts in side for part in parts]
        edges = [sorted({edge for part in every for edge in part[axis]}) for axis in range(3)]
        place = [{edge: n for n, edge in enumerate(own)} for own in edges]
        cells = defaultdict[tuple[int, ...], tuple[set[int], set[int]]](lambda: (set(), set()))
        for n, side in enumerate(sides):
            for gpu, parts in side:
                for part in parts:
                    covered = (
                        range(at[low], at[high])
                        for at, (low, high) in zip(place, part, strict=True)
                    )
                    for cell in product(*covered):
                        cells[cell][n].add(gpu)
        for cell, (owners, needers) in cells.items():
            if missing := needers - owners:
                share = prod(
                    (own[n + 1] - own[n] for own, n in zip(edges, cell, strict=True)),
                    start=Fraction(1),
                )
                yield share, tuple(sorted(owners)), tuple(sorted(missing))

    def _needs(
        self, number: int, owners: Gpus, needers: Gpus, slices: list[LayerSlices]
    ) -> Iterator[Need]:
        """Of a class, node by node."""
        names, by_node = self._names, defaultdict[str, set[str]](set)
        for gpu in needers:
            by_node[self._network.node_of[names[gpu]]].add(names[gpu])
        sources, size = frozenset(names[gpu] for gpu in owners), _copy_bytes(slices)
        for node, gpus in by_node.items():
            yield Need(number, sources, node, frozenset(gpus), size)


def _copy_bytes(slices: list[LayerSlices]) -> int:
    return sum(size * (end - start) for (start, end), size in slices)


def _forced_ns(needs: list[Need], network: Network) -> Fraction:
    """Time of the port or link with most that it cannot be spared, without start-up.

    Proof. Every GPU receives what it needs. One copy of a need comes from an owner: through the
    port of the only one, and over the links that lead from all nodes with owners to its node.
    """
    loads = defaultdict[Line, int](int)
    for need in needs:
        for gpu in need.receivers:
            loads["receive", gpu, None] += need.size_bytes
        some = next(iter(need.receivers))
        ways = [set(network.way(owner, some)) for owner in need.owners]
        forced = set[Line].intersection(*ways)
        if len(need.owners) == 1:
            forced |= {("send", owner, None) for owner in need.owners}
        for line in forced:
            loads[line] += need.size_bytes
    times = (size * network.ns_per_byte(line) for line, size in loads.items())
    return max(times, default=Fraction(0))
