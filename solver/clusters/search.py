"""The search over the clusters of a family: those that may change the front most come first.

Every cluster has a lower bound of its step time. It is closed once that is at least what makes its
plans dominated, up to the gap; its own best plan counts as one that dominates the others.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from formulations.instance.family import Counts, Family
from solver.clusters.clusters_ahead import ClustersAhead
from solver.clusters.kept_clusters import KeptMembers
from solver.clusters.measure import Measure
from solver.clusters.member import MemberClosing, Members, MemberTask
from solver.clusters.open_clusters import OpenClusters
from solver.interrupt import TimeUp, time_up_after
from solver.options import SolveOptions
from solver.result import Termination
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
        self.clock = Clock(options.time_limit_s)
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
        with suppress(TimeUp), time_up_after(self.clock.left_s):
            try:
                self._run(report, crew)
            except KeyboardInterrupt:
                return Termination.INTERRUPTED
        if not self.clusters.left:
            return Termination.CLOSED
        late = self.clock.out_of_time()
        return Termination.TIME_LIMIT if late else Termination.UNFINISHED

    def _run(self, report: Report | None, crew: Crew | None) -> None:
        self.clusters.bound()
        if crew is None:
            self._search(report, None)
            return
        ahead = ClustersAhead(
            self.members, self.clusters.upcoming, self.clock.out_of_time, self._keep
        )
        with ahead.by(crew, len(self.clusters.bounds)):
            self._search(report, ahead)

    def _search(self, report: Report | None, ahead: ClustersAhead | None) -> None:
        while not self.clock.out_of_time() and (task := self.clusters.next_task()):
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
        total, left, tell = len(self.clusters.bounds), len(self.clusters.left), report
        size, gap = len(self.clusters.front.best), self.clusters.gap

        def show(within: Progress | None) -> None:
            tell(
                FamilyProgress(
                    clusters_closed=total - left,
                    clusters_total=total,
                    front_size=size,
                    gap=gap,
                    elapsed_s=self.clock.elapsed_s,
                    now=now,
                    within=within,
                )
            )

        show(None)
        return show
