"""Which nodes a plan may use, worked out again: `space` says the rules."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from formulations.instance import Instance
from formulations.instance.cluster import FLASH_CAPABILITY
from solver.verify.findings import NOISE
from solver.verify.renting import cheapest

Nodes = tuple[int, ...]  #: number of nodes used, per node group


def price_usd_per_hour(instance: Instance, nodes_used: Nodes) -> float:
    """Rent of these numbers of nodes, on the terms that the objective chooses."""
    if instance.objective.minimize == "cost_per_useful_sequence":
        return cheapest(instance, nodes_used).usd_per_hour
    rents = [group.price_usd_per_hour for group in instance.cluster.groups]
    return sum(n * rent for n, rent in zip(nodes_used, rents, strict=True))


def instance_on(instance: Instance, nodes_used: Nodes) -> Instance:
    """The instance for plans on these nodes: with flash attention if left open and all have it.

    One flag stands for all GPUs of a launch. Without it no GPUs share a sequence.
    """
    if instance.fused is None:
        return instance
    pairs = zip(instance.cluster.groups, nodes_used, strict=True)
    capabilities = [group.gpu.compute_capability for group, count in pairs if count]
    if all(one is not None and one >= FLASH_CAPABILITY for one in capabilities):
        return instance.model_copy(update={"workload": instance.fused, "fused": None})
    whole = tuple(cp for cp in instance.search.context_parallel if cp == 1)
    search = instance.search.model_copy(update={"context_parallel": whole})
    return instance.model_copy(update={"search": search, "fused": None})


@dataclass(frozen=True)
class NodeChoices:
    """All numbers of nodes that a plan may use, fewest of the first groups first."""

    instance: Instance

    def __contains__(self, nodes_used: Nodes) -> bool:
        """Whether a plan may use exactly these nodes."""
        counts = [group.nodes for group in self.instance.cluster.groups]
        if len(nodes_used) != len(counts) or not any(nodes_used):
            return False
        least = [0] * len(counts) if self.instance.search.idle_nodes else counts
        inside = all(a <= n <= b for a, n, b in zip(least, nodes_used, counts, strict=True))
        return inside and self._is_affordable(nodes_used)

    def __iter__(self) -> Iterator[Nodes]:
        """One by one."""
        counts = [group.nodes for group in self.instance.cluster.groups]
        idle = self.instance.search.idle_nodes
        ranges = (range(0 if idle else count, count + 1) for count in counts)
        return filter(self.__contains__, product(*ranges))

    def _is_affordable(self, nodes_used: Nodes) -> bool:
        """Whether the rent of the nodes is within the limit."""
        limit = self.instance.limits.max_price_usd_per_hour
        rent = price_usd_per_hour(self.instance, nodes_used)
        return limit is None or rent <= limit * (1 + NOISE)
