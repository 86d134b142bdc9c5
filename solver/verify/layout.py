"""Where a plan runs."""

from dataclasses import dataclass
from functools import cached_property

from formulations.instance import Instance, NodeGroup
from formulations.plan import Degrees, Shape


@dataclass(frozen=True)
class Layout:
    """Where a plan runs: nodes[k][r] is the node of stage k of replica r, for p stages of GPUs."""

    instance: Instance
    shape: Shape
    nodes: tuple[tuple[int, ...], ...]
    #: Where every stage has degrees of its own: which machine each node is, of those by place.
    machines: tuple[int, ...] = ()

    def group(self, node: int) -> NodeGroup:
        """The group that a node belongs to."""
        return self.instance.cluster.groups[self.group_index[node]]

    def degrees(self, node: int) -> Degrees:
        """How the GPUs of a slot on a node share its stage."""
        return self.shape.degrees[self.group_index[node]]

    def together(self, a: int, b: int) -> bool:
        """Whether two nodes are one machine."""
        return a == b or bool(self.machines and self.machines[a] == self.machines[b])

    @cached_property
    def group_index(self) -> tuple[int, ...]:
        """Group index of every node of the cluster."""
        return self.instance.cluster.node_groups

    @cached_property
    def zone(self) -> tuple[str | None, ...]:
        """Zone of every node of the cluster."""
        return tuple(self.instance.cluster.groups[j].zone for j in self.group_index)
