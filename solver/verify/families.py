"""Path families of a schedule: what stage k of p has to do on paths that are the same elsewhere.

Each is a path of the operation graph of (schedule, p, m), so no split has a shorter step than what
it visits. It goes through stages 0..k-1, there and back or only there; on stage k it has a number
of forwards, backwards and weight gradients; and stages k+1..p-1 it goes through some number of
times, there and back. Then comes the tail of stage 0, or of stage k where it does not come back.

returned  micro-batch 0 down and back to stage k, what is left there, up
downward  all of stage k up to F(m - 1), then micro-batch m - 1 down and back up
flush     all forwards of stage k, F(m - 1) down, what the last stage then does up to B(0), that
          up to stage k, all its backwards, up; where B(0) follows F(m - 1) on the last stage
turns     micro-batch 0 down and back to stage k; pairs F, B of stage k for all but a turns; a
          times F down and back to B; up. With a = 1 and with as many as there are
device    down to the first operation of stage k and all that it does: its own tail follows
above     the same up to its last backward, then up

`families` builds them operation by operation and has `path_counts` test every arc; what is not a
path of this graph, or is not of this form, is left out. So nothing is assumed of any schedule.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from formulations.instance.instance import ScheduleName
from formulations.schedules import (
    SCHEDULES,
    Kind,
    ScheduleGraph,
    device_path,
    last_down,
    path_counts,
    returned,
    schedule_graph,
)

Path = NDArray[np.int64]
Count = int | NDArray[np.int64]


@dataclass(frozen=True)
class Member:
    """A path for stage k, by what it visits.

    own: forwards, backwards, weight gradients on stage k. back: whether it comes back to stage 0.
    beyond: how often it goes through the later stages, there and back. rest: weight gradients at
    the end on stage 0, for k > 0. Counts are numbers, or one per choice of m.
    """

    own: tuple[Count, Count, Count]
    back: bool
    beyond: Count
    rest: int = 0

    def covers(self, other: "Member") -> bool:
        """Whether it is at least as long as another whatever the times."""
        mine, others = ((*one.own, one.beyond, one.rest) for one in (self, other))
        return self.back == other.back and all(a >= b for a, b in zip(mine, others, strict=True))


@lru_cache(maxsize=4096)
def families(schedule: ScheduleName, p: int, m: int) -> tuple[tuple[Member, ...], ...]:
    """Per stage all members for replicas of m micro-batches; one chunk per device."""
    graph = schedule_graph(schedule, p, m)
    found = []
    for k in range(p):
        members = [one for path in _paths(graph, k) if (one := _member(graph, k, path))]
        found.append(
            tuple(
                one
                for i, one in enumerate(members)
                if not any(
                    other.covers(one) and (i > j or not one.covers(other))
                    for j, other in enumerate(members)
                    if i != j
                )
            )
        )
    return tuple(found)


def members_of(schedule: ScheduleName, p: int, k: int, m: Path) -> list[Member]:
    """The same for stage k and many m at once, by formulas that tests compare with `families`.

    None is shorter for a larger m.
    """
    one, members = SCHEDULES[schedule], [Member((m, m, m), back=False, beyond=0)]
    stage, beyond = np.full_like(m, k), int(k < p - 1)
    missed = one.missed(np.full_like(m, p), stage, m, np.ones_like(m))
    done = m - 1 if k else m + missed[0].weight  # on stage 0, all that it puts off comes after
    members += [Member((m - f, m - b, done - w), back=True, beyond=beyond) for f, b, w in missed]
    members.append(Member((m, m, done - missed[0].weight), back=True, beyond=0))
    if one.turns and beyond:
        most = (m - 1) // (p - k)
        for turns in (np.minimum(most, 1), most):
            own = np.where(turns > 0, m - turns * (p - k - 1), 0)
            members.append(Member((own, own, 0 * own), back=True, beyond=1 + turns))
    return members


def _paths(graph: ScheduleGraph, k: int) -> Iterator[Path]:
    """Candidates for stage k, whether or not they are paths of this graph."""
    yield returned(graph, k)
    yield last_down(graph, k)
    yield device_path(graph, k, ends_at=k)
    yield device_path(graph, k)
    if len(graph.index) == 2:
        yield _flush(graph, k)
        length = graph.num_stages - k
        for number in {1, (graph.micro_batches - 1) // length}:
            if 0 < number * length < graph.micro_batches:
                yield _turned(graph, k, number)


def _flush(graph: ScheduleGraph, k: int) -> Path:
    forward, backward = graph.index[Kind.FORWARD], graph.index[Kind.BACKWARD]
    return np.concatenate(
        [
            forward[:k, 0],
            forward[k],
            forward[k + 1 :, -1],
            backward[k + 1 :, 0][::-1],
            backward[k],
            backward[:k, -1][::-1],
        ]
    )


def _turned(graph: ScheduleGraph, k: int, number: int) -> Path:
    forward, backward = graph.index[Kind.FORWARD], graph.index[Kind.BACKWARD]
    m, length = graph.micro_batches, graph.num_stages - k
    parts = [forward[:, 0], backward[k:, 0][::-1]]
    pairs = m - 1 - number * length
    if pairs:
        own = [forward[k, length : length + pairs], backward[k, 1 : pairs + 1]]
        parts.append(np.stack(own, axis=1).ravel())
    for x in range(pairs + length, m, length):
        parts += [forward[k:, x], backward[k:, x][::-1]]
    return np.concatenate([*parts, backward[:k, -1][::-1]])


def _member(graph: ScheduleGraph, k: int, path: Path) -> Member | None:
    """What a path visits; None if it is none, or visits other stages in another way."""
    try:
        counts = path_counts(graph, path)
    except ValueError:
        return None
    p = graph.num_stages
    kinds = np.zeros((3, p), dtype=np.int64)
    kinds[: len(graph.index)] = counts.weights.reshape(-1, p)
    sends = counts.transfers[:-1].reshape(2, p - 1)
    stage, _ = divmod(int(path[-1]), graph.num_operations // p)
    back, beyond = stage == 0, int(kinds[0, -1]) if k < p - 1 else 0
    above = np.array([1, int(back and k > 0), 0])[:, None].repeat(k, axis=1)
    rest = int(kinds[2, 0]) if k else 0
    if k:
        above[2, 0] = rest
        back = bool(kinds[1, 0])
    through = np.array([beyond, beyond, 0])[:, None]
    expected = np.concatenate([above, kinds[:, k : k + 1], through.repeat(p - 1 - k, axis=1)], 1)
    moves = np.array([[1, int(back)]]).T.repeat(k, axis=1), np.full((2, p - 1 - k), beyond)
    same = np.array_equal(kinds, expected) and np.array_equal(sends, np.concatenate(moves, axis=1))
    if not same or (not back and beyond) or stage not in (0, k):
        return None
    forward, backward, weight = (int(n) for n in kinds[:, k])
    return Member((forward, backward, weight), bool(back), beyond, rest)
