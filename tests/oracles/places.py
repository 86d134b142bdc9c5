"""Where everything of a plan is, and how long links take: what all of the traffic is made of."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import ceil, gcd

from formulations.instance import Instance
from formulations.instance.cluster import NodeGroup
from formulations.instance.machines import Link
from formulations.plan import Degrees, Plan, Stage
from tests.oracles.layers import Model, Row

Pair = frozenset[str | None]  #: two zones


def ns(seconds: float) -> int:
    """Whole ns, rounded up but for the noise of floats."""
    return ceil(seconds * 1e9 * (1 - 1e-12))


def ring_s(f: float, n: int, size: float, link: Link) -> float:
    """The page's ring(f, n, S)."""
    return f * (n - 1) / n * size / link.bandwidth_bytes_per_s + f * (n - 1) * link.latency_s


@dataclass(frozen=True)
class Places:
    """A plan of an instance, for a model whose sizes are given."""

    instance: Instance
    plan: Plan
    model: Model

    @cached_property
    def rows(self) -> list[Row]:
        return self.model.layers()

    @cached_property
    def stages(self) -> list[list[Stage]]:
        """[S][R]."""
        return [list(row) for row in zip(*(r.stages for r in self.plan.replicas), strict=True)]

    @cached_property
    def used(self) -> list[int]:
        groups = self.instance.cluster.node_groups
        return sorted({groups[stage.group.node] for row in self.stages for stage in row})

    def splits(self, tp: int) -> bool:
        """Whether tensor groups of so many GPUs have a part of the sequence each."""
        search = self.instance.search
        return search.sequence_parallel and search.split_tokens % tp == 0

    def nodes_like(self, j: int) -> NodeGroup:
        return self.instance.cluster.groups[j]

    def of(self, node: int) -> NodeGroup:
        return self.nodes_like(self.instance.cluster.node_groups[node])

    def zone_link(self, pair: Pair) -> Link:
        first, second = pair
        return self.instance.cluster.link_between(first, second)

    def degrees(self, group: int) -> Degrees:
        return self.plan.config.degrees[group]

    @cached_property
    def widest(self) -> Degrees:
        slots = (stage.degrees for row in self.stages for stage in row)
        return max(slots, key=lambda slot: slot.tp)

    def nodes(self, device: int) -> Counter[int]:
        return Counter(stage.group.node for stage in self.stages[device])

    def tensor_group(self, device: int, node: int) -> Degrees:
        """Degrees of the slots of a device's stage on a node."""
        return next(stage.degrees for stage in self.stages[device] if stage.group.node == node)

    def efficiency(self, num_nodes: int) -> float:
        return max(e for e in self.instance.cluster.network_efficiency if e[0] <= num_nodes)[1]

    def sequences(self, slot: Degrees) -> int:
        """Of a micro-batch, those of a part."""
        return self.plan.config.micro_batch // slot.parts

    def tokens(self, slot: Degrees) -> float:
        """Those that a tensor group has of a micro-batch: t."""
        return self.sequences(slot) * self.model.tokens / slot.cp

    # Experts

    @property
    def grid(self) -> bool:
        """Whether experts lie otherwise on the GPUs of a stage than all else."""
        return self.plan.config.ep > 1 or self.plan.config.etp == 1

    def lanes(self, j: int) -> int:
        """GPUs that split an expert: etp."""
        return 1 if self.plan.config.etp == 1 else self.degrees(j).tp

    def ranks(self, j: int) -> int:
        """Ranks of a node of a group: q."""
        width = self.degrees(j).width
        return self.nodes_like(j).gpus_per_node // width * width // self.lanes(j)

    @property
    def together(self) -> int:
        """Ranks of a group of experts that surely share a node: u."""
        return gcd(self.plan.config.ep, *(self.ranks(j) for j in self.used))

    @property
    def zone_links(self) -> Iterator[Link]:
        zones = {self.nodes_like(j).zone for j in self.used}
        return (self.zone_link(frozenset(pair)) for pair in combinations(zones, 2))
