"""Clusters that workers search ahead of their turn, with the cutoffs that hold meanwhile."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, count

from formulations.instance.family import Counts
from solver.clusters.member import MemberClosing, Members, MemberTask, left_open
from solver.search.closing import Stop
from solver.search.crew import Asked, Crew, Losses, Round

#: Seconds between two looks at the time.
LOOK_S = 0.1

#: The open clusters whose turn may come next, of so many, if plans of these step times are found.
Upcoming = Callable[[int, Mapping[Counts, int]], Iterator[MemberTask]]


class ClustersAhead:
    """What workers are at, and what they have closed before its turn.

    A cluster is closed as one process closes it: what was found below another cutoff is searched
    for again. Where nothing was below a higher one, nothing is below that of its turn. Cutoffs are
    foreseen: those of the turns that come if every cluster has the plan that was found of it.
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
        self.early: dict[Counts, list[tuple[MemberTask, MemberClosing]]] = {}
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
            known = self._known(task)
            if known is not None:
                del self.early[task.counts]
                return known
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
        found = {
            counts: min(one.found[1] for _, one in known if one.found is not None)
            for counts, known in self.early.items()
            if any(one.found is not None for _, one in known)
        }
        most = 2 * (len(busy) + 1 + len(self.early))
        for task in chain([now], self.upcoming(most, found)):
            if task.counts not in busy and self._known(task) is None:
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
                self.early.setdefault(task.counts, []).append((task, reply.answer))

    def _known(self, task: MemberTask) -> MemberClosing | None:
        """What was closed of the cluster, if that is as it would be closed now."""
        known = self.early.get(task.counts, ())
        return next((closing for asked, closing in known if _replies(asked, closing, task)), None)


def _replies(asked: MemberTask, closing: MemberClosing, task: MemberTask) -> bool:
    if asked.cutoff_ns == task.cutoff_ns:
        return True
    return closing.found is None and asked.cutoff_ns >= task.cutoff_ns
