"""Schedules as the literature words them, and the ends of their operations by plain recursion."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

Done = tuple[str, int, int]  #: F, B or W; virtual stage; micro-batch


@cache
def operations(
    schedule: str, p: int, device: int, m: int, v: int = 1, group: int | None = None
) -> list[Done]:
    if schedule == "interleaved":
        return _interleaved(p, device, m, v, group or p)
    if schedule == "zb-h1":
        return list(_putting_off(p, device, m))
    return _ahead(m if schedule == "gpipe" else p - device, device, m)


def _ahead(most: int, stage: int, m: int) -> list[Done]:
    """As many forwards ahead of the backwards as allowed."""
    done: list[Done] = []
    forwards = backwards = 0
    while backwards < m:
        if forwards < m and forwards - backwards < most:
            done.append(("F", stage, forwards))
            forwards += 1
        else:
            done.append(("B", stage, backwards))
            backwards += 1
    return done


def _interleaved(p: int, device: int, m: int, v: int, size: int) -> list[Done]:
    """Megatron-LM: a table of (micro-batch, chunk); warm-up, one of each in turn, the rest."""
    groups = [range(m)[first : first + size] for first in range(0, m, size)]
    table = [(i, c) for group in groups for c in range(v) for i in group]
    forward = [("F", c * p + device, i) for i, c in table]
    backward = [("B", (v - 1 - c) * p + device, i) for i, c in table]
    warm = min(2 * (p - 1 - device) + (v - 1) * size, m * v)
    steady = [one for pair in zip(forward[warm:], backward, strict=False) for one in pair]
    return forward[:warm] + steady + backward[m * v - warm :]


def _putting_off(p: int, stage: int, m: int) -> Iterator[Done]:
    """ZB-H1: 1F1B of F and B; stage k puts off k weight gradients, or as many as it has pairs."""
    most = min(stage, m - min(p - 1 - stage, m))
    waiting: list[Done] = []
    for kind, _, i in _ahead(p - stage, stage, m):
        yield kind, stage, i
        if kind == "B":
            waiting.append(("W", stage, i))
            if len(waiting) > most:
                yield waiting.pop(0)
    yield from waiting


@cache
def moments(
    schedule: str, p: int, device: int, m: int, v: int = 1, group: int | None = None
) -> list[list[tuple[str, int]]]:
    """After every operation of a device, what it keeps: F (all) or B (for W) and virtual stage."""
    kept: dict[tuple[int, int], str] = {}
    found = []
    splits = schedule == "zb-h1"
    for kind, stage, i in operations(schedule, p, device, m, v, group):
        if kind == "F" or (kind == "B" and splits):
            kept[stage, i] = kind
        else:
            del kept[stage, i]
        found.append([(state, own) for (own, _), state in kept.items()])
    return found


def most_in_flight(schedule: str, p: int, device: int, m: int) -> int:
    """Largest number of micro-batches forward but not yet backward; one chunk per device."""
    return max(sum(kind == "F" for kind, _ in kept) for kept in moments(schedule, p, device, m))


def stage_ends(
    schedule: str,
    m: int,
    forward: Sequence[int],
    backward: Sequence[int],
    send: Sequence[int],
    blocking: bool = False,
    send_back: Sequence[int] | None = None,
    weight: Sequence[int] | None = None,
    v: int = 1,
    group: int | None = None,
) -> list[int]:
    """End of the last operation of every device of one pipeline.

    Times of virtual stages, backward without `weight`; None: it is not split off.
    """
    back = send if send_back is None else send_back
    last = len(forward) - 1
    p = len(forward) // v
    orders = [operations(schedule, p, d, m, v, group) for d in range(p)]
    before = {b: a for order in orders for a, b in pairwise(order)}

    def delay(size: int) -> int:
        return 0 if blocking else size

    def duration(kind: str, s: int) -> int:
        if kind == "W":
            assert weight is not None
            return weight[s]
        if kind == "F":
            return forward[s] + (send[s] if blocking and s < last else 0)
        return backward[s] + (back[s - 1] if blocking and s > 0 else 0)

    @cache
    def end(kind: str, s: int, i: int) -> int:
        known = before.get((kind, s, i))
        begin = 0 if known is None else end(*known)
        if kind == "W":
            begin = max(begin, end("B", s, i))
        if kind == "F" and s > 0:
            begin = max(begin, end("F", s - 1, i) + delay(send[s - 1]))
        if kind == "B" and s < last:
            begin = max(begin, end("B", s + 1, i) + delay(back[s]))
        if kind == "B" and s == last:
            begin = max(begin, end("F", s, i))
        return begin + duration(kind, s)

    return [end(*order[-1]) for order in orders]
