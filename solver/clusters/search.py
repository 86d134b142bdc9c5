"""The search over the clusters of a family: those that may change the front most come first.

Every cluster has a lower bound of its step time. It is closed once that is at least what makes its
plans dominated, up to the gap; its own best plan counts as one that dominates the others.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace, nsmallest
from itertools import chain, count
from math import inf

from formulations.instance.family import Counts, Family
from solver.clusters.front import Front, Measure
from solver.clusters.member import KeptMembers, MemberClosing, Members, MemberTask, left_open
from solver.interrupt import Deadline, TimeUp, time_up_after
from solver.options import SolveOptions
from solver.result import NOISE, Termination
from solver.search.enumeration import Stop
from solver.search.progress import Progress
from solver.search.speculation import crew_of
from solver.search.worker_pool import Asked, Crew, Losses, Round
from solver.study.store import Study


class OpenClusters:
    """What is known of every cluster. bounds: of its step time in ns; None: no plan.

    closed: clusters whose turn is over, and whether bounds alone were not enough. proofs: closings
    of those on the front; no more is kept of others, so that memory does not grow with the search.
    """

    def __init__(self, members: Members, measure: Measure, asked: float) -> None:
        """asked: the gap up to which a cluster counts as closed."""
        self.members, self.asked = members, asked
        self.front = Front(measure, members.counts)
        self.bounds: dict[Counts, int | None] = dict.fromkeys(members.counts, 0)
        self.closed: dict[Counts, bool] = {}
        self.proofs: dict[Counts, MemberClosing] = {}
        self._packed: set[Counts] = set()

    @property
    def left(self) -> list[Counts]:
        """The open ones."""
        return [counts for counts in self.bounds if self.is_open(counts)]

    def bound(self) -> None:
        """Bounds all of them in closed form."""
        for counts in self.bounds:
            self.bounds[counts] = self._within(counts, self.members.bound_ns(counts))

    def target_ns(self, counts: Counts, front: Front | None = None) -> float:
        """A bound of at least this closes the cluster."""
        return (front or self.front).cutoffs[counts] * (1 - self.asked) * (1 - NOISE)

    def is_open(self, counts: Counts, front: Front | None = None) -> bool:
        """Whether the cluster may have a plan that is not dominated, beyond the gap."""
        bound_ns = self.bounds[counts]
        return bound_ns is not None and bound_ns < self.target_ns(counts, front)

    def next_task(self) -> MemberTask | None:
        """The open cluster not yet searched that may go furthest beyond the front."""
        heap = [(self._rank(counts), counts) for counts in self._unsearched()]
        heapify(heap)
        while heap:
            _, counts = heap[0]
            if counts in self._packed:
                return MemberTask(counts, self.front.cutoffs[counts])
            packed_ns = self.members.packed_ns(counts, self.target_ns(counts))
            self.bounds[counts] = self._within(counts, packed_ns)
            self._packed.add(counts)
            if self.is_open(counts):
                heapreplace(heap, (self._rank(counts), counts))
            else:
                heappop(heap)
        return None

    def _within(self, counts: Counts, bound_ns: int | None) -> int | None:
        """A bound of a cluster; None where plans that take so long are beyond limits."""
        refused_ns = (max(self.front.longest[counts]) + 1) * (1 - NOISE)
        return None if bound_ns is None or bound_ns >= refused_ns else bound_ns

    def _unsearched(self) -> list[Counts]:
        """Open clusters not yet searched."""
        return [one for one in self.left if one not in self.closed]

    def _rank(self, counts: Counts, front: Front | None = None) -> tuple[float, ...]:
        """The lower the further the cluster may go; without a front, fast and cheap ones first."""
        bound_ns = self.bounds[counts] or 0
        measure = self.front.measure
        time, cost, *_ = measure.figures(counts, bound_ns, measure.terms(counts)[0])
        return bound_ns / (front or self.front).cutoffs[counts], time * cost

    def take(self, closing: MemberClosing) -> None:
        """Keeps what became known of a cluster."""
        counts, known_ns, bound_ns = closing.counts, self.bounds[closing.counts], closing.bound_ns
        possible = known_ns is not None and bound_ns is not None
        proved_ns = max(known_ns or 0, bound_ns or 0) if possible else None
        self.bounds[counts] = self._within(counts, proved_ns)
        self.closed[counts] = closing.searched
        if closing.found is not None:
            self.front.offer(counts, closing.found[1])
            known = self.proofs | {counts: closing}
            self.proofs = {one.counts: known[one.counts] for one in self.front.best}

    def upcoming(self, most: int, expected: Mapping[Counts, int]) -> Iterator[MemberTask]:
        """Those open clusters whose turn comes next if plans of these step times are found.

        Of so many that may go furthest beyond the front as it is.
        """
        left = set(nsmallest(most, self._unsearched(), key=self._rank))
        front = self.front.among(left)
        while left := {counts for counts in left if self.is_open(counts, front)}:
            counts = min(left, key=lambda one: (self._rank(one, front), one))
            left.remove(counts)
            yield MemberTask(counts, front.cutoffs[counts])
            if expected.get(counts, inf) < front.cutoffs[counts]:
                front.offer(counts, expected[counts])

    @property
    def gap(self) -> float | None:
        """How far plans of open clusters may be beyond the front at most; None: any way."""
        shares = []
        for counts, bound_ns in self.bounds.items():
            cutoff_ns = self.front.cutoffs[counts]
            if bound_ns is not None and bound_ns < cutoff_ns * (1 - NOISE):
                shares.append(bound_ns / cutoff_ns)
        return None if 0 in shares else 1 - min(shares, default=1.0)


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
        for asked, closing in self.early.get(task.counts, ()):
            nothing = closing.found is None and asked.cutoff_ns >= task.cutoff_ns
            if nothing or asked.cutoff_ns == task.cutoff_ns:
                return closing
        return None


@dataclass(frozen=True)
class FamilyProgress:
    """State of a search over clusters, while one of them is searched.

    gap: most that the front may be wrong by, relative to its figures; None: by anything. within: of
    the search of the cluster at hand, `now`; None as long as nothing is known.
    """

    clusters_closed: int
    clusters_total: int
    front_size: int
    gap: float | None
    elapsed_s: float
    now: Counts
    within: Progress | None


Report = Callable[[FamilyProgress], None]


class FamilySearch:
    """One search. study: where every closing is kept, and taken from if it is known."""

    def __init__(
        self,
        family: Family,
        measure: Measure,
        options: SolveOptions,
        study: Study | None = None,
    ) -> None:
        if measure.limited:  # other limits hold on other terms, and a limit has no gap
            options = replace(options, gap=0.0)
        self.family, self.options = family, options
        self.deadline = Deadline(options.time_limit_s)
        self.members = Members(family, options, study)
        own = self.members.study
        self.kept = None if own is None else KeptMembers(own, self.members, measure.aim)
        self.clusters = OpenClusters(self.members, measure, options.gap)

    def run(self, report: Report | None = None, crew: Crew | None = None) -> Termination:
        """Closes clusters until none is open or time is up; nothing that is known is lost.

        By a crew cluster by cluster, that of Ray unless another is given; processes of this machine
        share the shapes of one cluster.
        """
        if crew is None and self.options.engine == "ray":
            crew = crew_of(self.options)
        with suppress(TimeUp), time_up_after(self.deadline.end_s):
            try:
                self._run(report, crew)
            except KeyboardInterrupt:
                return Termination.INTERRUPTED
        if not self.clusters.left:
            return Termination.CLOSED
        late = self.deadline.over()
        return Termination.TIME_LIMIT if late else Termination.UNFINISHED

    def _run(self, report: Report | None, crew: Crew | None) -> None:
        self.clusters.bound()
        if crew is None:
            self._search(report, None)
            return
        ahead = ClustersAhead(self.members, self.clusters.upcoming, self.deadline.over, self._keep)
        with ahead.by(crew, len(self.clusters.bounds)):
            self._search(report, ahead)

    def _search(self, report: Report | None, ahead: ClustersAhead | None) -> None:
        while not self.deadline.over() and (task := self.clusters.next_task()):
            closing = self._closing(task, report, ahead)
            if closing is None:
                return
            self.clusters.take(closing)
            self._note()
            if closing.interrupted:
                raise KeyboardInterrupt
        self._note()  # bounds may have closed the others

    def _note(self) -> None:
        if self.kept is not None:
            known, left = self.clusters, self.clusters.left
            closed = len(known.bounds) - len(left)
            self.kept.note(closed, left, len(known.front.best), known.gap)

    def _closing(
        self, task: MemberTask, report: Report | None, ahead: ClustersAhead | None
    ) -> MemberClosing | None:
        """How a cluster is closed, by a study, by workers or by a search; None: no time."""
        known = None if self.kept is None else self.kept.find(task)
        if known is not None:
            return known
        if ahead is not None:
            return ahead.closing(task)
        closing = self._searched(task, report)
        if not self.deadline.over():
            self._keep(task, closing)
        return closing

    def _searched(self, task: MemberTask, report: Report | None) -> MemberClosing:
        return self.members.close(task, self.deadline.left_s, self._shown(task.counts, report))

    def _keep(self, task: MemberTask, closing: MemberClosing) -> None:
        if self.kept is not None and not closing.cut_short:
            self.kept.keep(task, closing)

    def _shown(
        self, now: Counts, report: Report | None
    ) -> Callable[[Progress | None], None] | None:
        """Tells what is known of all clusters, with what the search of one of them tells."""
        if report is None:
            return None
        total, left, tell = len(self.clusters.bounds), len(self.clusters.left), report
        size, gap = len(self.clusters.front.best), self.clusters.gap

        def show(within: Progress | None) -> None:
            tell(
                FamilyProgress(
                    clusters_closed=total - left,
                    clusters_total=total,
                    front_size=size,
                    gap=gap,
                    elapsed_s=self.deadline.elapsed_s,
                    now=now,
                    within=within,
                )
            )

        show(None)
        return show
