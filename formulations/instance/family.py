"""Instances that differ in how many nodes of each group they have."""

from collections.abc import Iterator
from itertools import product
from math import prod

from pydantic import model_validator

from formulations.instance.input_limits import Index
from formulations.instance.instance import Instance
from formulations.instance.record import Record

#: More clusters than these are no question that is answered one by one.
MOST_MEMBERS = 100_000

Counts = tuple[int, ...]  #: nodes per node group


class Family(Record):
    """Clusters to choose among: of every node group `fewest` nodes up to those of `instance`.

    All else is as in the instance. Plans of a cluster have flash attention where all GPUs that they
    use do, as everywhere: `Instance.on`.
    """

    instance: Instance
    fewest: tuple[Index, ...]

    @model_validator(mode="after")
    def _check_extent(self) -> "Family":
        if len(self.fewest) != len(self.most):
            raise ValueError("not one least number per node group")
        if any(low > high for low, high in zip(self.fewest, self.most, strict=True)):
            raise ValueError("a least number of nodes above the largest")
        if (count := prod(map(len, self._ranges))) > MOST_MEMBERS:
            raise ValueError(f"{count:,} clusters")
        return self

    @property
    def most(self) -> Counts:
        """Largest number of nodes per group."""
        return tuple(group.nodes for group in self.instance.cluster.groups)

    @property
    def _ranges(self) -> list[range]:
        ends = zip(self.fewest, self.most, strict=True)
        return [range(lower, upper + 1) for lower, upper in ends]

    def members(self) -> Iterator[Counts]:
        """Nodes per group of every cluster, the empty one left out."""
        return (counts for counts in product(*self._ranges) if any(counts))

    def uses(self, counts: Counts) -> Iterator[Counts]:
        """Nodes that plans of a cluster may use so that no smaller cluster has these plans too.

        Nodes may idle where the instance lets them: of a smaller cluster, if there is one.
        """
        idle = self.instance.search.idle_nodes
        ranges = [
            range(0 if idle and count == lowest else count, count + 1)
            for count, lowest in zip(counts, self.fewest, strict=True)
        ]
        return (used for used in product(*ranges) if any(used))

    def member(self, counts: Counts) -> Instance:
        """The instance of one cluster, on which plans use all nodes; empty groups are left out."""
        instance, cluster = self.instance.on(counts), self.instance.cluster
        groups = tuple(
            group.model_copy(update={"nodes": count})
            for group, count in zip(cluster.groups, counts, strict=True)
            if count
        )
        search = instance.search.model_copy(update={"idle_nodes": False})
        return instance.model_copy(
            update={"cluster": cluster.with_groups(groups), "search": search}
        )
