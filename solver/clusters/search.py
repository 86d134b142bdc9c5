"""The search over the clusters of a family: those that may change the front most come first.

Every cluster has a lower bound of its step time. It is closed once that is at least what makes its
plans dominated, up to the gap; its own best plan counts as one that dominates the others.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace, nsmallest
from math import inf

from formulations.instance.family import Counts, Family
from solver.clusters.clusters_ahead import ClustersAhead
from solver.clusters.front import Front
from solver.clusters.kept_clusters import KeptMembers
from solver.clusters.measure import Measure
from solver.clusters.member import MemberClosing, Members, MemberTask
from solver.interrupt import TimeUp, time_up_after
from solver.options import SolveOptions
from solver.result import NOISE, Termination
from solver.search.crew import Crew
from solver.search.incumbents import Clock
from solver.search.portfolio import crew_of
from solver.search.progress import Progress
from solver.study.store import Study


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
    """State of one search. bounds: of the step time in ns of every cluster; None: no plan.

    closed: clusters whose turn is over, and whether bounds alone were not enough. proofs: closings
    of those on the front; no more is kept of others, so that memory does not grow with the search.
    study: where every closing is kept, and taken from if it is known.
    """

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
        self.clock = Clock(options.time_limit_s)
        self.members = Members(family, options, study)
        own = self.members.study
        self.kept = None if own is None else KeptMembers(own, self.members, measure.aim)
        self.front = Front(measure, self.members.counts)
        self.bounds: dict[Counts, int | None] = dict.fromkeys(self.members.counts, 0)
        self.packed: set[Counts] = set()
        self.closed: dict[Counts, bool] = {}
        self.proofs: dict[Counts, MemberClosing] = {}

    def target_ns(self, counts: Counts, front: Front | None = None) -> float:
        """A bound of at least this closes the cluster."""
        return (front or self.front).cutoffs[counts] * (1 - self.options.gap) * (1 - NOISE)

    def is_open(self, counts: Counts, front: Front | None = None) -> bool:
        """Whether the cluster may have a plan that is not dominated, beyond the gap."""
        bound_ns = self.bounds[counts]
        return bound_ns is not None and bound_ns < self.target_ns(counts, front)

    def next_task(self) -> MemberTask | None:
        """The open cluster not yet searched that may go furthest beyond the front."""
        heap = [(self._rank(counts), counts) for counts in self._left()]
        heapify(heap)
        while heap:
            _, counts = heap[0]
            if counts in self.packed:
                return MemberTask(counts, self.front.cutoffs[counts])
            packed_ns = self.members.packed_ns(counts, self.target_ns(counts))
            self.bounds[counts] = self._within(counts, packed_ns)
            self.packed.add(counts)
            if self.is_open(counts):
                heapreplace(heap, (self._rank(counts), counts))
            else:
                heappop(heap)
        return None

    def _within(self, counts: Counts, bound_ns: int | None) -> int | None:
        """A bound of a cluster; None where plans that take so long are beyond limits."""
        refused_ns = (max(self.front.longest[counts]) + 1) * (1 - NOISE)
        return None if bound_ns is None or bound_ns >= refused_ns else bound_ns

    def _left(self) -> list[Counts]:
        """Open clusters not yet searched."""
        return [one for one in self.bounds if one not in self.closed and self.is_open(one)]

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

    def run(self, report: Report | None = None, crew: Crew | None = None) -> Termination:
        """Closes clusters until none is open or time is up; nothing that is known is lost.

        By a crew cluster by cluster, that of Ray unless another is given; processes of this machine
        share the shapes of one cluster.
        """
        if crew is None and self.options.engine == "ray":
            crew = crew_of(self.options)
        with suppress(TimeUp), time_up_after(self.clock.left_s):
            try:
                self._run(report, crew)
            except KeyboardInterrupt:
                return Termination.INTERRUPTED
        if not any(map(self.is_open, self.bounds)):
            return Termination.CLOSED
        late = self.clock.out_of_time()
        return Termination.TIME_LIMIT if late else Termination.UNFINISHED

    def _run(self, report: Report | None, crew: Crew | None) -> None:
        for counts in self.bounds:
            self.bounds[counts] = self._within(counts, self.members.bound_ns(counts))
        if crew is None:
            self._search(report, None)
            return
        ahead = ClustersAhead(self.members, self.upcoming, self.clock.out_of_time, self._keep)
        with ahead.by(crew, len(self.bounds)):
            self._search(report, ahead)

    def _search(self, report: Report | None, ahead: ClustersAhead | None) -> None:
        while not self.clock.out_of_time() and (task := self.next_task()):
            closing = self._closing(task, report, ahead)
            if closing is None:
                return
            self.take(closing)
            self._note()
            if closing.interrupted:
                raise KeyboardInterrupt
        self._note()  # bounds may have closed the others

    def _note(self) -> None:
        if self.kept is not None:
            left = [counts for counts in self.bounds if self.is_open(counts)]
            self.kept.note(len(self.bounds) - len(left), left, len(self.front.best), self.gap)

    def upcoming(self, most: int, expected: Mapping[Counts, int]) -> Iterator[MemberTask]:
        """Those open clusters whose turn comes next if plans of these step times are found.

        Of so many that may go furthest beyond the front as it is.
        """
        left = set(nsmallest(most, self._left(), key=self._rank))
        front = self.front.among(left)
        while left := {counts for counts in left if self.is_open(counts, front)}:
            counts = min(left, key=lambda one: (self._rank(one, front), one))
            left.remove(counts)
            yield MemberTask(counts, front.cutoffs[counts])
            if expected.get(counts, inf) < front.cutoffs[counts]:
                front.offer(counts, expected[counts])

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
        if not self.clock.out_of_time():
            self._keep(task, closing)
        return closing

    def _searched(self, task: MemberTask, report: Report | None) -> MemberClosing:
        limit_s = self.clock.limit_s
        left_s = None if limit_s is None else max(0.0, limit_s - self.clock.elapsed_s)
        return self.members.close(task, left_s, self._shown(task.counts, report))

    def _keep(self, task: MemberTask, closing: MemberClosing) -> None:
        if self.kept is not None and not closing.cut_short:
            self.kept.keep(task, closing)

    def _shown(
        self, now: Counts, report: Report | None
    ) -> Callable[[Progress | None], None] | None:
        """Tells what is known of all clusters, with what the search of one of them tells."""
        if report is None:
            return None
        open_ = [counts for counts in self.bounds if self.is_open(counts)]
        size, gap, tell = len(self.front.best), self.gap, report

        def show(within: Progress | None) -> None:
            tell(
                FamilyProgress(
                    clusters_closed=len(self.bounds) - len(open_),
                    clusters_total=len(self.bounds),
                    front_size=size,
                    gap=gap,
                    elapsed_s=self.clock.elapsed_s,
                    now=now,
                    within=within,
                )
            )

        show(None)
        return show

    @property
    def gap(self) -> float | None:
        """How far plans of open clusters may be beyond the front at most; None: any way."""
        shares = []
        for counts, bound_ns in self.bounds.items():
            cutoff_ns = self.front.cutoffs[counts]
            if bound_ns is not None and bound_ns < cutoff_ns * (1 - NOISE):
                shares.append(bound_ns / cutoff_ns)
        return None if 0 in shares else 1 - min(shares, default=1.0)
