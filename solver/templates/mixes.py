"""Ways to take nodes of a cluster for one template, and what stages on them cost."""

from collections.abc import Iterable, Iterator

from formulations.fleet import Strategy
from formulations.instance import Instance, ZoneLink
from formulations.node_sharing import NodeSplit
from solver.layered.edges import has_split
from solver.layered.gpu_graph import Counts, GpuGraph
from solver.layered.pipelines import FreeDegrees
from solver.layered.places import PlaceCosts, place_costs
from solver.templates.judge import alone

Links = tuple[ZoneLink, ...]


class Mixes:
    """Mixes of nodes of one instance, by node group; costs are worked out once."""

    def __init__(self, instance: Instance, split: NodeSplit) -> None:
        self.instance, self._split = instance, split
        #: nodes of every group
        self.available: Counts = tuple(group.nodes for group in instance.cluster.groups)
        self._places: dict[tuple[Strategy, Links], PlaceCosts] = {}

    def of(self, nodes: int) -> list[Counts]:
        """All ways to take so many of the cluster's nodes."""
        return list(_mixes(self.available, nodes))

    def links_across(self, mix: Counts) -> Links:
        """The links between the zones of a mix, each once."""
        return self.instance.cluster.links_among(j for j, count in enumerate(mix) if count)

    def places(self, strategy: Strategy, across: Links = ()) -> PlaceCosts:
        """across: links between the zones of the templates."""
        key = strategy, across
        if key not in self._places:
            self._places[key] = place_costs(self.instance, strategy, self._split, across)
        return self._places[key]

    def holds(self, mix: Counts, strategies: Iterable[Strategy], micro_batches: int) -> bool:
        """Whether any template on these nodes fits into memory, by any strategy."""
        for strategy in strategies:
            costs = self.places(strategy)
            if alone(costs.alone, [mix], micro_batches):
                return True
            if has_split(FreeDegrees(GpuGraph(costs.several, [mix]), micro_batches).problem):
                return True
        return False


def _mixes(available: Counts, nodes: int) -> Iterator[Counts]:
    if not available:
        yield from [()] if nodes == 0 else []
        return
    rest = sum(available[1:])
    for first in range(max(0, nodes - rest), min(available[0], nodes) + 1):
        for others in _mixes(available[1:], nodes - first):
            yield first, *others
