"""Where stages with degrees of their own stand: the layouts of a shape, see `Shape.degrees`.

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

    def __init__(self, whole: ByPlace) -> None:
        self.whole, self.groups = whole, whole.instance.cluster.groups
        self.used, self.node, self.left = [0] * len(self.groups), 0, 0
        self.begun = list[Degrees]()

    def take(self, code: int) -> list[Group] | None:
        """GPUs of every replica of a stage; None where it cannot stand so, or be launched."""
        place, together = divmod(code, 2)
        j, degrees = self.whole.places[place]
        self.begun.append(degrees)
        last = len(self.begun) == self.whole.shape.pp
        if not may_follow(self.whole.instance, self.whole.shape.zero, self.begun[0], degrees, last):
            return None
        size, gpus = self.groups[j].gpus_per_node, self.whole.shape.dp * degrees.width
        if together:
            inside = self.whole.instance.cluster.node_groups[self.node] == j
            if not self.left or gpus > self.left or not inside:
                return None
            first, self.left = size - self.left, self.left - gpus
        else:
            count = max(1, gpus // size)
            if self.left or (gpus > size and gpus % size):
                return None
            self.node = self.whole.instance.cluster.first_node[j] + self.used[j]
            self.used[j] += count
            if self.used[j] > self.whole.shape.nodes_used[j]:
                return None
            first, self.left = 0, count * size - gpus
        return [
            Group(
                node=self.node + gpu // size,
                gpus=tuple(range(gpu % size, gpu % size + degrees.width)),
            )
            for gpu in range(first, first + gpus, degrees.width)
        ]

    @property
    def full(self) -> bool:
        """Whether no GPU of the nodes that the shape uses is left."""
        return not self.left and tuple(self.used) == self.whole.shape.nodes_used


def slots_of(whole: ByPlace, layout: Sequence[int]) -> list[list[Group]] | None:
    """[p][dp] GPUs of every stage and replica; None if the layout is none of the shape."""
    floor, found = _Floor(whole), []
    for code in layout:
        groups = floor.take(code)
        if groups is None:
            return None
        found.append(groups)
    return found if floor.full and len(found) == whole.shape.pp else None


def layouts(whole: ByPlace, begun: Layout = ()) -> Iterator[Layout]:
    """All layouts that begin so."""
    floor = _Floor(whole)
    if any(floor.take(code) is None for code in begun):
        return
    if len(begun) == whole.shape.pp:
        if floor.full:
            yield begun
        return
    for place in range(len(whole.places)):
        yield from layouts(whole, (*begun, 2 * place + bool(floor.left)))


def layout_plan(
    whole: ByPlace,
    layout: Sequence[int],
    boundaries: Sequence[int],
    micro_batches: Sequence[int],
    recomputed: Choose,
) -> Plan:
    """The plan with this layout, these layers of the stages, and these shares of the replicas."""
    slots, layers = slots_of(whole, layout), list(pairwise(boundaries))
    assert slots is not None  # whoever made the layout
    chosen = [recomputed(k, code // 2, layers[k]) for k, code in enumerate(layout)]
    degrees = [whole.places[code // 2][1] for code in layout]
    replicas = [
        Replica(
            micro_batches=share,
            stages=tuple(
                Stage(layers=own, group=groups[r], degrees=degrees[k], recomputed=chosen[k])
                for k, (own, groups) in enumerate(zip(layers, slots, strict=True))
            ),
        )
        for r, share in enumerate(micro_batches)
    ]
    nodes = dict.fromkeys(group.node for groups in slots for group in groups)
    return Plan(shape=whole.shape, node_order=tuple(nodes), replicas=tuple(replicas))
