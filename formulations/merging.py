"""How many pipelines a failure takes apart, for any set of template sizes.

A pipeline of s nodes that loses one becomes a pipeline of s - 1 if that is a size. Otherwise other
pipelines join in: together with the s - 1 nodes left their nodes are put into pipelines anew. With
sizes n0 .. 2 n0 - 1 one other is enough (Jang et al., Oobleck, SOSP 2023, section 5.2: one that has
a node to lend, or one of n0 to merge with). Fewer sizes can mean that more pipelines join.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from formulations.coverage import Coverage


def partitions(sizes: Sequence[int], nodes: int) -> Iterator[tuple[int, ...]]:
    """Every multiset of `sizes`, ascending and distinct, that sums to `nodes`; parts descending."""
    if not nodes:
        yield ()
    for index, size in enumerate(sizes):
        if size <= nodes:
            for rest in partitions(sizes[: index + 1], nodes - size):
                yield (size, *rest)


def pipelines_rebuilt(known: Coverage, partition: Sequence[int], failed: int) -> int | None:
    """Fewest pipelines to put together anew when one of `failed` nodes loses a node.

    `known`: coverage with the f + 1 pipelines that must be left, up to the sum of `partition`. The
    failed pipeline counts too. None if the nodes left are not covered: one of them stays idle.
    """
    others = list(partition)
    others.remove(failed)
    for joining in range(len(others) + 1):
        needed = known.faults + 1 - (len(others) - joining)
        for joined in set(combinations(sorted(others), joining)):
            if known.makes(failed - 1 + sum(joined), needed):
                return joining + 1
    return None


def worst_rebuilt(sizes: Sequence[int], faults: int, nodes: int) -> int | None:
    """Most pipelines that one failure takes apart, over all ways to run on `nodes` nodes.

    None if there is a way and a failure after which no way uses all nodes left. Raises ValueError
    if there is no way.
    """
    known = Coverage(sizes, faults, nodes)
    worst = 0
    for partition in partitions(known.sizes, nodes):
        if len(partition) <= faults:
            continue
        for failed in set(partition):
            rebuilt = pipelines_rebuilt(known, partition, failed)
            if rebuilt is None:
                return None
            worst = max(worst, rebuilt)
    if not worst:
        raise ValueError(f"{nodes} nodes are no sum of {faults + 1} or more of {known.sizes}")
    return worst
