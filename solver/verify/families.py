"""Path families of a schedule: what a device has to do on paths that are the same on all others.

Each is a path of the operation graph of (schedule, p, m, v), so no split has a shorter step than
what it visits: on device k any number of passes of each of its chunks of layers, on each device
before it the same, and on each device after it. Then comes the tail of device 0, or of device k
where it does not come back. For a stage s of device k:

returned  micro-batch 0 down and back to stage s, what is left on the device, up
downward  all of the device up to F(s, m - 1), then micro-batch m - 1 down and back up
flush     all forwards of stage k, F(m - 1) down, what the last stage then does up to B(0), that
          up to stage k, all its backwards, up; where B(0) follows F(m - 1) on the last stage
turns     micro-batch 0 down and back to stage k; pairs F, B of stage k for all but a turns; a
          times F down and back to B; up. With a = 1 and with as many as there are
device    down to the first operation of device k and all that it does: its own tail follows
above     the same up to its last backward, then up

`families` builds them operation by operation and has `path_counts` test every arc; what is not a
path of this graph, or is not of this form, is left out. So nothing is assumed of any schedule.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from formulations.instance.search import ScheduleName
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
Visits = tuple[tuple[int, int, int], ...]  #: per chunk forwards, backwards, messages from before

THERE: Visits = ((1, 0, 1),)
BACK: Visits = ((1, 1, 2),)

#: More than any time in ns or number of micro-batches; sums of a few stay within 64 bits.
NEVER = 1 << 59


@dataclass(frozen=True)
class Member:
    """A path for device k, by what it visits.

    own: how often each of `Costs.times`. before: on each device before. after: on each
    device after, `beyond` times. back: whether it comes back to the first device. rest: weight
    gradients at the end on that, for k > 0. Counts are numbers, or one per choice of m.
    """

    own: tuple[Count, ...]
    before: Visits
    after: Visits
    back: bool
    beyond: Count
    rest: int = 0

    def covers(self, other: "Member") -> bool:
        """Whether it is at least as long as another whatever the times."""
        mine, others = (
            (*one.own[: len(one.own) // 2], one.beyond, one.rest) for one in (self, other)
        )
        alike = (self.before, self.after, self.back) == (other.before, other.after, other.back)
        return alike and all(a >= b for a, b in zip(mine, others, strict=True))


def of_one_chunk(
    own: tuple[Count, Count, Count], back: bool, beyond: Count, rest: int = 0
) -> Member:
    """With so many forwards, backwards and weight gradients on stage k."""
    sends = (1 + back + 0 * own[0], own[0] - beyond, own[1] - back)
    return Member((*own, *sends), BACK if back else THERE, BACK, back, beyond, rest)


@lru_cache(maxsize=4096)
def families(
    schedule: ScheduleName, p: int, m: int, chunks: int = 1
) -> tuple[tuple[Member, ...], ...]:
    """Per device all members for replicas of m micro-batches."""
    graph = schedule_graph(schedule, p, m, chunks)
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

    None is shorter for a larger m; one chunk per device.
    """
    one, members = SCHEDULES[schedule], [of_one_chunk((m, m, m), False, 0)]
    stage, beyond = np.full_like(m, k), int(k < p - 1)
    missed = one.missed(np.full_like(m, p), stage, m, np.ones_like(m))
    done = m - 1 if k else m + missed[0].weight  # on stage 0, all that it puts off comes after
    members += [of_one_chunk((m - f, m - b, done - w), True, beyond) for f, b, w in missed]
    members.append(of_one_chunk((m, m, done - missed[0].weight), True, 0))
    if one.turns and beyond:
        most = (m - 1) // (p - k)
        for turns in (np.minimum(most, 1), most):
            own = np.where(turns > 0, m - turns * (p - k - 1), 0)
            members.append(of_one_chunk((own, own, 0 * own), True, 1 + turns))
    return members


def _paths(graph: ScheduleGraph, k: int) -> Iterator[Path]:
    """Candidates for device k, whether or not they are paths of this graph."""
    for stage in range(k, graph.num_stages, graph.num_devices):
        yield returned(graph, stage)
        yield last_down(graph, stage)
    yield device_path(graph, k, ends_at=k)
    yield device_path(graph, k)
    if len(graph.index) == 2 and graph.num_stages == graph.num_devices:
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
    """What a path visits; None if it is none, or not the same on all devices before or after."""
    try:
        counts = path_counts(graph, path)
    except ValueError:
        return None
    p, stages = graph.num_devices, graph.num_stages
    kinds, moves = np.zeros((2, 3, stages), dtype=np.int64)
    kinds[: len(graph.index)] = counts.weights.reshape(-1, stages)
    moves[:2, :-1] = counts.transfers[:-1].reshape(2, stages - 1)
    sends = np.roll(moves.sum(axis=0), 1)
    sends[0] = kinds[:2, 0].sum()  # it takes no time
    onward, behind = kinds[0] - moves[0], kinds[1] - np.roll(moves[1], 1)
    whole = np.stack([*kinds, sends, onward, behind]).reshape(6, -1, p)
    last, rest = int(path[-1]) // (graph.num_operations // p), int(kinds[2, 0]) if k else 0
    whole[2, 0, 0] -= rest
    alike = all((part == part[..., :1]).all() for part in (whole[:4, :, :k], whole[:4, :, k + 1 :]))
    late = whole[2].sum() - whole[2, :, k].sum()
    if not alike or late or last not in (0, k):
        return None
    beyond = int(np.gcd.reduce(whole[[0, 1, 3], :, k + 1 :].ravel()))
    through = BACK * whole.shape[1]
    return Member(
        own=tuple(whole[:, :, k].ravel().tolist()),
        before=_visits(whole[..., 0]) if k else through,
        after=_visits(whole[..., -1] // beyond) if beyond else through,
        back=last == 0,
        beyond=beyond,
        rest=rest,
    )


def _visits(counts: Path) -> Visits:
    """Of counts [6, v] on one device."""
    return tuple((f, b, sends) for f, b, _, sends, _, _ in counts.T.tolist())
