"""Nodes dealt to lanes: drawn dealings beside all ways to deal."""

from collections.abc import Callable
from itertools import product
from random import Random

import pytest

from solver.verify import partition
from solver.verify.partition import Dealing, Nodes, best_deal, deal
from tests.recorded import Cases, recorded


def drawn(rng: Random) -> Dealing:
    """Places of up to three groups that lanes fill, and up to 20 micro-batches for each lane."""
    number, pp = rng.randint(1, 3), rng.randint(1, 4)
    groups = rng.choices(range(rng.randint(1, 3)), k=number * pp)
    total, even = number * rng.randint(1, 20), rng.random() < 0.4
    return Dealing(
        places=tuple(groups.count(j) for j in range(max(groups) + 1)),
        number=number,
        pp=pp,
        total=total,
        fewest=total // number if even else 1,
        largest=total // number if even else total,
        even=even,
        work=[rng.randint(5, 15) for _ in range(max(groups) + 1)],
    )


def able(rng: Random, dealing: Dealing) -> tuple[dict[Nodes, int], Callable[[Nodes, int], bool]]:
    """What lanes do at most, about by their speeds."""
    share = sum(n / work for n, work in zip(dealing.places, dealing.work, strict=True))
    most = dict[Nodes, int]()
    for nodes in dealing.kinds:
        speed = sum(n / work for n, work in zip(nodes, dealing.work, strict=True))
        most[nodes] = int(dealing.total * speed / share * rng.uniform(0.8, 1.4))
    return most, lambda nodes, asked: asked <= most[nodes]


@recorded("verify_partition")
def test_dealings_are_the_recorded_ones_and_the_best_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> Cases:
    """A dealing has the largest sum; the most of lanes is found; a light lane is in a range.

    Of weights w and W - w of two lanes and more, one has s W >= S w.
    """
    for seed in range(60):
        dealing = drawn(rng := Random(seed))
        most, can = able(rng, dealing)
        some = {nodes: count for nodes, count in most.items() if rng.random() < 0.8}
        sums = {
            chosen: sum(some[nodes] for nodes in chosen)
            for chosen in product(some, repeat=dealing.number)
            if tuple(map(sum, zip(*chosen, strict=True))) == dealing.places
        }
        dealt = best_deal(some, dealing.number, dealing.places)
        assert sums[tuple(dealt)] == max(sums.values()) if sums else dealt == []
        left = [array.tolist() for array in deal(some, dealing.number, dealing.places)]
        known = dealing.most_by_nodes(can, {dealing.kinds[0]: 3})
        weights = dealing.weights
        ranges = [] if weights is None else dealing.ranges(weights)
        figures = [list(map(list, dealt)), left[-1], known and list(known.values())]
        yield f"{seed}", [*figures, weights and list(weights), list(map(list, ranges))]
    for limit, few in ((10, True), (9, False)):  # two lanes, and 0 to 4 nodes of the first group
        monkeypatch.setattr(partition, "MOST_DEALT", limit)
        assert Dealing((4, 2), 2, 3, 10, 1, 9, False, [1, 1]).few == few
