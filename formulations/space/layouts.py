"""Where stages with degrees of their own stand: the layouts of a config, see `Config.degrees`.

A layout has a number for every stage: 2 x at place x on the next node, or nodes, of its group,
2 x + 1 at place x behind the stage before, in the node that this has left GPUs of.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from formulations.plan import ByPlace, Degrees, Group, Plan, Recomputed, Replica, Stage
from formulations.space.slots import may_follow

Layout = tuple[int, ...]
#: Of a stage, its place and layers.
Choose = Callable[[int, int, tuple[int, int]], Recomputed]


class _Floor:
    """The nodes that stages have begun, GPUs left of the last one, and degrees of the stages."""

    def __init__(self, places: ByPlace) -> None:
        self.instance, self.config, self.places = places.instance, places.config, places.places
        self.used, self.node, self.rest = [0] * len(places.instance.cluster.groups), 0, 0
        self.begun = list[Degrees]()

    def take(self, code: int) -> list[Group] | None:
        """GPUs of every replica of a stage; None where it cannot stand so, or be launched."""
        place, together = divmod(code, 2)
        j, degrees = self.places[place]
        cluster, config = self.instance.cluster, self.config
        self.begun.append(degrees)
        last = len(self.begun) == config.pp
        if not may_follow(self.instance, config.zero, self.begun[0], degrees, last):
            return None
        size, gpus = cluster.groups[j].gpus_per_node, config.dp * degrees.width
        if together:  # behind the stage before, in its node
            if not self.rest or gpus > self.rest or cluster.node_groups[self.node] != j:
                return None
            first, self.rest = size - self.rest, self.rest - gpus
        else:  # on a new node, or on as many as it fills
            count = max(1, gpus // size)
            if self.rest or (gpus > size and gpus % size):
                return None
            self.node = cluster.first_node[j] + self.used[j]
            self.used[j] += count
            if self.used[j] > config.nodes_used[j]:
                return None
            first, self.rest = 0, count * size - gpus
        return [
            Group(
                node=self.node + gpu // size,
                gpus=tuple(range(gpu % size, gpu % size + degrees.width)),
            )
            for gpu in range(first, first + gpus, degrees.width)
        ]

    @property
    def full(self) -> bool:
        """Whether no GPU of the nodes that the configuration uses is left."""
        return not self.rest and tuple(self.used) == self.config.nodes_used


def slots_of(places: ByPlace, layout: Sequence[int]) -> list[list[Group]] | None:
    """[p][dp] GPUs of every stage and replica; None if the layout is none of the configuration."""
    floor, stages = _Floor(places), []
    for code in layout:
        groups = floor.take(code)
        if groups is None:
            return None
        stages.append(groups)
    return stages if floor.full and len(stages) == places.config.pp else None


def layouts(places: ByPlace, begun: Layout = ()) -> Iterator[Layout]:
    """All layouts that begin so."""
    floor = _Floor(places)
    if any(floor.take(code) is None for code in begun):
        return
    if len(begun) == places.config.pp:
        if floor.full:
            yield begun
        return
    for place in range(len(places.places)):
        yield from layouts(places, (*begun, 2 * place + bool(floor.rest)))


def layout_plan(
    places: ByPlace,
    layout: Sequence[int],
    boundaries: Sequence[int],
    micro_batches: Sequence[int],
    recomputed: Choose,
) -> Plan:
    """The plan with this layout, these layers of the stages, and these shares of the replicas."""
    slots, layers = slots_of(places, layout), list(pairwise(boundaries))
    assert slots is not None  # whoever made the layout
    ways = [recomputed(k, code // 2, layers[k]) for k, code in enumerate(layout)]
    degrees = [places.places[code // 2][1] for code in layout]
    replicas = [
        Replica(
            micro_batches=share,
            stages=tuple(
                Stage(layers=span, group=slots[k][r], degrees=degrees[k], recomputed=ways[k])
                for k, span in enumerate(layers)
            ),
        )
        for r, share in enumerate(micro_batches)
    ]
    nodes = dict.fromkeys(group.node for groups in slots for group in groups)
    return Plan(config=places.config, node_order=tuple(nodes), replicas=tuple(replicas))
