"""What slots of a shape lie on in whatever order its nodes stand.

Slots are in node order: a node of group j covers c_j of them in a row, stage k of replica r has
slot k dp + r.
"""

from dataclasses import dataclass
from functools import cached_property
from math import gcd

from formulations.instance import Instance, NodeGroup
from formulations.plan import Shape
from formulations.units import ceil_div
from solver.verify.volumes import num_slots


@dataclass(frozen=True)
class AnyOrder:
    """All orders of the nodes used of a shape."""

    instance: Instance
    shape: Shape

    @cached_property
    def used(self) -> tuple[int, ...]:
        """Node groups of the nodes used."""
        return tuple(j for j, n in enumerate(self.shape.nodes_used) if n)

    @cached_property
    def groups(self) -> tuple[NodeGroup, ...]:
        """The same, as records."""
        return tuple(self.instance.cluster.groups[j] for j in self.used)

    @cached_property
    def slots(self) -> tuple[int, ...]:
        """Slots c_j on one node of each group used."""
        return tuple(num_slots(self.instance, self.shape, j) for j in self.used)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Nodes of each group used."""
        return tuple(self.shape.nodes_used[j] for j in self.used)

    def spans(self) -> range:
        """Numbers of nodes that one stage may lie on.

        Proof: a stage is dp slots in a row, and borders of nodes and of stages lie at multiples of
        q = gcd(dp, all c_j). On N nodes it has largest c_j of them at most per node. A stage of q
        slots is on one node. Else all its nodes but the first and the last are whole, c_j slots
        each, and these two have q at least: (N - 2) least c_j + 2 q <= dp. A single stage is on all
        nodes used.
        """
        dp, q = self.shape.dp, gcd(self.shape.dp, *self.slots)
        if self.shape.pp == 1:
            return range(sum(self.counts), sum(self.counts) + 1)
        if dp == q:
            return range(1, 2)
        least = ceil_div(dp, max(self.slots))
        most = 2 + (dp - 2 * q) // min(self.slots)
        return range(least, max(least, min(most, sum(self.counts))) + 1)
