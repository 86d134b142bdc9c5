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

With one chunk per device these are the formulas of `members_of`, which tests compare with simulated
steps. With several, `families` builds the others operation by operation and has `path_counts` test
every arc; what is not a path of this graph, or is not of this form, is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from formulations.costs.intervals import Array
from formulations.instance.search import ScheduleName
from formulations.schedules.graph import ScheduleGraph, schedule_graph
from formulations.schedules.paths import device_path, last_down, path_counts, returned
from formulations.schedules.registry import SCHEDULES

Count = int | Array
Visits = tuple[tuple[int, int, int], ...]  #: per chunk forwards, backwards, messages from before

THERE: Visits = ((1, 0, 1),)
BACK: Visits = ((1, 1, 2),)

#: More than any time in ns or number of micro-batches; sums of a few stay within 64 bits.
NEVER = 1 << 59


@dataclass(frozen=True)
class Member:
    """A path for device k, by what it visits.

    times: how often each of `Costs.times` of device k. before: on each device before. after: on
    each device after, `beyond` times. back: whether it comes back to the first device. Counts are
    numbers, or one per choice of m.
    """

    times: tuple[Count, ...]
    before: Visits
    after: Visits
    back: bool
    beyond: Count

    def covers(self, member: "Member") -> bool:
        """Whether it is at least as long as another whatever the times."""
        counts, others = (
            (*path.times[: len(path.times) // 2], path.beyond) for path in (self, member)
        )
        alike = (self.before, self.after, self.back) == (member.before, member.after, member.back)
        return alike and all(a >= b for a, b in zip(counts, others, strict=True))


def of_one_chunk(times: tuple[Count, Count, Count], back: bool, beyond: Count) -> Member:
    """With so many forwards, backwards and weight gradients on stage k."""
    sends = (1 + back + 0 * times[0], times[0] - beyond, times[1] - back)
    return Member((*times, *sends), BACK if back else THERE, BACK, back, beyond)


@lru_cache(maxsize=4096)
def families(
    schedule: ScheduleName, p: int, m: int, chunks: int, group: int | None = None
) -> tuple[tuple[Member, ...], ...]:
    """Per device all members for replicas of m micro-batches, none covered by another."""
    graph, by_device = schedule_graph(schedule, p, m, chunks, group), list[tuple[Member, ...]]()
    for k in range(p):
        longest = list[Member]()
        for path in _paths(graph, k):
            member = _member(graph, k, path)
            if member and not any(longer.covers(member) for longer in longest):
                kept = (shorter for shorter in longest if not member.covers(shorter))
                longest = [*kept, member]
        by_device.append(tuple(longest))
    return tuple(by_device)


def members_of(schedule: ScheduleName, p: int, k: int, m: Array) -> list[Member]:
    """The same for stage k and many m at once; one chunk per device.

    With a larger m the longest path is no shorter: with as many turns all grow.
    """
    rules, members = SCHEDULES[schedule], [of_one_chunk((m, m, m), False, 0)]
    stage, beyond = np.full_like(m, k), int(k < p - 1)
    missed = rules.missed(np.full_like(m, p), stage, m, np.ones_like(m))
    done = m - 1 if k else m + missed[0].weight  # on stage 0, all that it puts off comes after
    members += [of_one_chunk((m - f, m - b, done - w), True, beyond) for f, b, w in missed]
    members.append(of_one_chunk((m, m, done - missed[0].weight), True, 0))
    if rules.turns and beyond:
        most_turns = (m - 1) // (p - k)
        for turns in (np.minimum(most_turns, 1), most_turns):
            pairs = np.where(turns > 0, m - turns * (p - k - 1), 0)
            members.append(of_one_chunk((pairs, pairs, 0 * pairs), True, 1 + turns))
    return members


def _paths(graph: ScheduleGraph, k: int) -> Iterator[Array]:
    """Candidates for device k, whether or not they are paths of this graph."""
    for stage in range(k, graph.num_stages, graph.num_devices):
        yield returned(graph, stage)
        yield last_down(graph, stage)
    yield device_path(graph, k, ends_at=k)
    yield device_path(graph, k)


def _member(graph: ScheduleGraph, k: int, path: Array) -> Member | None:
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
    visits = np.stack([*kinds, sends, onward, behind]).reshape(6, -1, p)
    last = int(path[-1]) // (graph.num_operations // p)  # the device on which it ends
    outside = visits[:4, :, :k], visits[:4, :, k + 1 :]
    alike = all((part == part[..., :1]).all() for part in outside)
    puts_off = visits[2].sum() > visits[2, :, k].sum()  # weight gradients elsewhere
    if not alike or puts_off or last not in (0, k):
        return None
    beyond = int(np.gcd.reduce(visits[[0, 1, 3], :, k + 1 :].ravel()))
    before, after = (
        tuple((f, b, sends) for f, b, _, sends, _, _ in device.T.tolist())
        for device in (visits[..., 0], visits[..., -1] // max(beyond, 1))
    )
    through = BACK * visits.shape[1]
    return Member(
        times=tuple(visits[:, :, k].ravel().tolist()),
        before=before if k else through,
        after=after if beyond else through,
        back=last == 0,
        beyond=beyond,
    )
