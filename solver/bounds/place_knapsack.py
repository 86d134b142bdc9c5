"""How many micro-batches all lanes together can have if the places are dealt out to them.

A knapsack by dynamic programming, a dimension for every kind of places (Kellerer, Pferschy and
Pisinger 2004, multidimensional knapsack).

shares: by counts of places, the largest share of a lane with these; [A] for A questions at once,
0 or less if there is no such lane. With G_l(t) the most micro-batches that l lanes can have with t
places by kind, G_0(0) = 0 and G_l(t) = max over counts c of G_{l-1}(t - c) + share(c).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from solver.bounds.lane_places import Counts
from solver.layered.problem import Array

#: Less than any number of micro-batches, also if a few are added.
NEVER = -(1 << 40)


def grids(shares: Mapping[Counts, Array], lanes: int, places: Sequence[int]) -> list[Array]:
    """Most micro-batches of 0, 1, .. lanes: [places + 1 of every kind but the last, A].

    The last kind has what is left: a lane has p places. Below 0: the places cannot be dealt so.
    """
    size = len(next(iter(shares.values())))
    known = [(c[:-1], np.where(own > 0, own, NEVER)) for c, own in shares.items()]
    grid = np.full((*(n + 1 for n in places[:-1]), size), NEVER)
    grid[(0,) * (len(places) - 1)] = 0
    found = [grid]
    for _ in range(lanes):
        more = np.full_like(grid, NEVER)
        for counts, own in known:
            to = tuple(slice(c, None) for c in counts)
            since = tuple(slice(0, n + 1 - c) for c, n in zip(counts, places, strict=False))
            np.maximum(more[to], found[-1][since] + own, out=more[to])
        found.append(more)
    return found


def together(shares: Mapping[Counts, Array], lanes: int, places: Sequence[int]) -> Array:
    """[A] most micro-batches of all lanes with all places."""
    most: Array = grids(shares, lanes, places)[-1][tuple(places[:-1])]
    return most


def needed(
    shares: Mapping[Counts, int], lanes: int, places: Sequence[int], total: int
) -> dict[Counts, int]:
    """What a lane with each of these counts has to do at least if all lanes are to have `total`.

    That much, less the most that the other lanes can do with the places left. Counts that cannot
    do it are left out: no lane has them.
    """
    if not shares:
        return {}
    grid = grids({c: np.array([s]) for c, s in shares.items()}, lanes - 1, places)[-1][..., 0]
    least = {}
    for counts, share in shares.items():
        left = tuple(n - c for n, c in zip(places[:-1], counts, strict=False))
        own = max(1, total - int(grid[left])) if min(left, default=0) >= 0 else total + 1
        if own <= share:
            least[counts] = own
    return least


def dealt(shares: Mapping[Counts, int], lanes: int, places: Sequence[int]) -> list[Counts]:
    """Counts of every lane that together can have the most, where all places can be dealt."""
    found = [
        grid[..., 0] for grid in grids({c: np.array([s]) for c, s in shares.items()}, lanes, places)
    ]
    left, chosen = tuple(places[:-1]), []
    for before, now in zip(reversed(found[:-1]), reversed(found[1:]), strict=True):
        for counts, share in shares.items():
            rest = tuple(n - c for n, c in zip(left, counts, strict=False))
            if min(rest, default=0) >= 0 and before[rest] + share == now[left]:
                chosen.append(counts)
                left = rest
                break
    return chosen
