"""Node orders that a search tries, the same for heuristics and exact search."""

from collections.abc import Iterator, Sequence
from math import factorial, prod

Order = tuple[int, ...]


def count_orders(nodes_used: Sequence[int]) -> int:
    """Number of distinct orders of `nodes_used[j]` equal nodes of every group j."""
    return factorial(sum(nodes_used)) // prod(factorial(count) for count in nodes_used)


def _following(order: list[int]) -> bool:
    """Whether there is a lexicographic successor; `order` becomes it (Knuth, TAOCP 7.2.1.2 L)."""
    pivot = len(order) - 2
    while pivot >= 0 and order[pivot] >= order[pivot + 1]:
        pivot -= 1
    if pivot < 0:
        return False
    other = len(order) - 1
    while order[other] <= order[pivot]:
        other -= 1
    order[pivot], order[other] = order[other], order[pivot]
    order[pivot + 1 :] = order[:pivot:-1]
    return True


def _rotations(order: Order) -> set[Order]:
    return {order[i:] + order[:i] for i in range(len(order))}


def _structured(listed: Order) -> set[Order]:
    groups = sorted(set(listed))
    found = _rotations(listed) | _rotations(listed[::-1])
    for chosen in groups:
        own = tuple(j for j in listed if j == chosen)
        rest = tuple(j for j in listed if j != chosen)
        found |= {own + rest, rest + own, own + rest[::-1], rest[::-1] + own}
    return found


def node_orders(nodes_used: Sequence[int], limit: int) -> Iterator[Order]:
    """Distinct orders of the nodes used, as node-group indices, in lexicographic order.

    All of them if there are at most `limit`. Otherwise those of Kang et al. (FASOP, ICPE 2024)
    as published, the rotations of the nodes group by group, in both directions, and every group
    first or last before or after the others: at most 2 nodes + 4 groups.
    """
    listed = tuple(j for j, count in enumerate(nodes_used) for _ in range(count))
    if count_orders(nodes_used) > limit:
        yield from sorted(_structured(listed))
        return
    order = list(listed)
    yield listed
    while _following(order):
        yield tuple(order)
