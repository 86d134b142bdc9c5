"""Clusters that workers search ahead of their turn, with the cutoffs that hold meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from formulations.instance.family import Counts
from solver.clusters.member import MemberClosing, Members, MemberTask, left_open
from solver.search.closing import Stop
from solver.search.crew import Asked, Crew, Losses, Round

#: Seconds between two looks at the time.
LOOK_S = 0.1

#: The open clusters whose turn may come next, so many at most.
Upcoming = Callable[[int], Sequence[MemberTask]]


class ClustersAhead:
    """What workers are at, and what they have closed before its turn.

    A cluster is closed as one process closes it: what was found below another cutoff is searched
    for again. Where nothing was below a higher one, nothing is below that of its turn.
    """

    def __init__(
        self,
        members: Members,
        upcoming: Upcoming,
        stop: Stop,
        keep: Callable[[MemberTask, MemberClosing], None],
    ) -> None:
        """`keep` is told of every closing as soon as it comes, whether or not it is of use."""
        self.members, self.upcoming, self.stop, self.keep = members, upcoming, stop, keep
        self.at_work: dict[int, MemberTask] = {}
        self.early: dict[Counts, tuple[MemberTask, MemberClosing]] = {}
        self.losses = Losses()
        self._positions = count()
        self._round: Round[MemberTask, MemberClosing] | None = None

    @contextmanager
    def by(self, crew: Crew, size: int) -> Iterator[None]:
        """With a crew at work in the block."""
        with crew.round(self.members, size, self.stop) as self._round:
            yield

    def closing(self, task: MemberTask) -> MemberClosing | None:
        """How a cluster is closed whose turn has come; None: there was no time.

        One that workers die of is left as it is.
        """
        while not self.stop():
            known = self.early.pop(task.counts, None)
            if known is not None and _replies(*known, task):
                return known[1]
            if self.losses.fatal(task.counts, f"a cluster of {task.counts} nodes"):
                return left_open(task)
            self._hand_out(task)
            self._take()
        return None

    def _hand_out(self, now: MemberTask) -> None:
        """Clusters for all who have nothing to do."""
        assert self._round is not None
        if not self._round.room:
            return
        busy = {task.counts for task in self.at_work.values()}
        for task in [now, *self.upcoming(len(busy) + 1 + len(self.early))]:
            if task.counts not in busy and task.counts not in self.early:
                position = next(self._positions)
                self.at_work[position] = task
                self._round.submit([Asked(position, task)])
                busy.add(task.counts)
                if not self._round.room:
                    return

    def _take(self) -> None:
        assert self._round is not None
        for reply in self._round.receive(LOOK_S):
            task = self.at_work.pop(reply.position)
            if reply.lost:
                self.losses.add(task.counts)
            if reply.answer is not None:
                self.keep(task, reply.answer)
                self.early[task.counts] = task, reply.answer


def _replies(asked: MemberTask, closing: MemberClosing, task: MemberTask) -> bool:
    if asked.cutoff_ns == task.cutoff_ns:
        return True
    return closing.found is None and asked.cutoff_ns >= task.cutoff_ns
