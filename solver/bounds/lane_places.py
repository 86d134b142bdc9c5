"""How many places of each kind one lane of a shape may have, see `lane`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from formulations.costs.placement import Placer
from solver.bounds.kinds import Kind, kinds_of
from solver.layered.all_orders import lane_width
from solver.layered.problem import Intervals

#: Kinds are taken together until the ways on all counts have no more edges, about.
MOST_EDGES = 50_000_000

Counts = tuple[int, ...]  #: places of one lane by kind


@dataclass(frozen=True)
class LanePlaces:
    """Places of `number` lanes, each of `width` replicas and as many places as `stages`.

    kinds: the first of them the fastest; there: places of each in the shape. parted: the kinds of
    every zone, where lanes have equally many of its places, as no stage spans zones.
    """

    number: int
    width: int
    stages: int
    kinds: tuple[Kind, ...]
    there: Counts
    parted: tuple[tuple[int, ...], ...] = ()

    def counts(self) -> Iterator[Counts]:
        """All ways to divide the places of one lane among the kinds."""
        for counts in _divided(self.stages, self.there):
            if all(
                self.number * sum(counts[i] for i in zone) == sum(self.there[i] for i in zone)
                for zone in self.parted
            ):
                yield counts

    def num_edges(self, num_layers: int) -> int:
        """About how many edges the ways on all counts have.

        Those of a lane with the counts of the mean lane, times the ways to divide its places; runs
        of layers are taken to be up to twice as long as they would be if all stages were alike.
        """
        p, size = self.stages, num_layers
        states = prod(min(p, n // self.number) + 1 for n in self.there[:-1]) * len(self.kinds)
        return sum(1 for _ in self.counts()) * p * states * size * min(size, 2 * size // p)


def lane_places(intervals: Intervals, placer: Placer, split: bool) -> LanePlaces:
    """The places of a shape; the slowest kinds as one, while there are too many ways.

    split: no stage spans zones.
    """
    tables, zone = intervals.tables, placer.zones.zone_of_group
    shape, width = tables.shape, lane_width(tables)
    slots = zip(shape.nodes_used, tables.slots_per_node, strict=True)
    each = [nodes * size // width for nodes, size in slots]
    kinds = kinds_of(intervals, 0.0)
    while True:
        found = LanePlaces(
            number=shape.dp // width,
            width=width,
            stages=shape.pp,
            kinds=tuple(kinds),
            there=tuple(sum(each[j] for j in kind) for kind in kinds),
            parted=_by_zone([{zone[j] for j in kind} for kind in kinds]) if split else (),
        )
        if len(kinds) <= 2 or found.num_edges(tables.num_layers) <= MOST_EDGES:
            return found
        kinds = [*kinds[:-2], kinds[-2] + kinds[-1]]


def _by_zone(homes: Sequence[set[int]]) -> tuple[tuple[int, ...], ...]:
    """Kinds of every zone; none if some kind is of several. homes: zones by kind."""
    if any(len(home) > 1 for home in homes):
        return ()
    return tuple(
        tuple(i for i, home in enumerate(homes) if z in home) for z in sorted(set().union(*homes))
    )


def _divided(total: int, places: Sequence[int]) -> Iterator[Counts]:
    """All ways to take so many of the places."""
    if len(places) == 1:
        if total <= places[0]:
            yield (total,)
        return
    for count in range(min(total, places[0]) + 1):
        yield from ((count, *more) for more in _divided(total - count, places[1:]))
