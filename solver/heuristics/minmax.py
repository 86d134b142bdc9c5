"""The min-max split of FASOP (Kang et al., ICPE 2024), as intended, with memory checked.

The published code undoes its last move with indices that may have been overwritten, and keeps
the times of the undone split; here a move that does not help is never adopted. Its splits are
not checked against memory; here every stage of every replica fits.
"""

from itertools import accumulate, pairwise

from formulations.costs.tables import CostTables
from solver.heuristics.stages import OrderStages, Split, least_ends, nearest_split


def even_split(tables: CostTables) -> Split:
    """Equal numbers of layers; of r left over, the last stage gets one, then stages 0 .. r - 2.

    Where that leaves a stage without its least number of blocks: the nearest split that does
    not. Raises ValueError if the chain is too short for pp stages. Memory is not looked at.
    """
    stages, layers = tables.shape.pp, tables.num_layers
    each, left_over = divmod(layers, stages)
    sizes = [each + (k < left_over - 1) for k in range(stages)]
    sizes[-1] += left_over > 0
    target = tuple(accumulate(sizes, initial=0))
    least = least_ends(tables)
    if all(end >= least[start] for start, end in pairwise(target)):
        return target
    anywhere = (*range(stages), layers)
    split = nearest_split(target, lambda k, start: range(least[start], layers + 1), anywhere)
    if split is None:
        raise ValueError(f"{layers} layers are too few for {stages} stages")
    return split


def moved(split: Split, source: int, target: int) -> Split:
    """One layer less on stage `source`, one more on `target`; stages in between shift by one."""
    low, high = sorted((source, target))
    step = 1 if source > target else -1
    return tuple(b + step if low < k <= high else b for k, b in enumerate(split))


def _move(costs: OrderStages, split: Split, times: list[int]) -> Split | None:
    """One layer from the slowest stage to the fastest that can take it; None if none can."""
    slow = times.index(max(times))
    for fast in sorted(range(len(times)), key=lambda k: times[k]):
        if times[fast] == times[slow]:
            return None
        result = moved(split, slow, fast)
        changed = range(min(slow, fast), max(slow, fast) + 1)
        if all(costs.allowed(k, result[k], result[k + 1]) for k in changed):
            return result
    return None


def fitting_even_split(costs: OrderStages) -> Split | None:
    """The even split, or if it does not fit, the nearest that does; None iff no split fits."""
    split = even_split(costs.tables)
    if costs.fits(split):
        return split
    earliest = costs.earliest_starts()
    return nearest_split(split, costs.ends, earliest) if earliest[0] == 0 else None


def minmax_of(costs: OrderStages) -> Split | None:
    """Boundaries (pp + 1 layer indices) of the min-max split; None iff no split fits memory.

    Starts from the even split, or the nearest that fits, and moves one layer from the slowest
    stage to the fastest that has room for it, while the largest stage time falls or, among
    stages of equal time, stays without coming back to a split seen before. The largest stage
    time is never above that of the start. Stage time: forward + backward of one micro-batch on
    the slowest replica.
    """
    split = fitting_even_split(costs)
    if split is None:
        return None
    times = costs.times_ns(split)
    seen = {split}
    while (candidate := _move(costs, split, times)) and candidate not in seen:
        following = costs.times_ns(candidate)
        if max(following) > max(times):
            break
        seen.add(candidate)
        split, times = candidate, following
    return split
