"""The search over the clusters of a family: those that may change the front most come first.

Every cluster has a lower bound of its step time. It is closed once that is at least what makes its
plans dominated, up to the gap; its own best plan counts as one that dominates the others.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace

from formulations.costs.renting import Terms
from formulations.instance.instance import Counts, Family
from formulations.units import seconds
from solver.clusters.front import Front, Measure
from solver.clusters.member import (
    FamilyOverview,
    MemberClosing,
    Members,
    member_config,
    member_plan,
)
from solver.files import sealed
from solver.front_document import Aim, ClusterRecord, FrontDocument, PointDocument, TermsDocument
from solver.interrupt import Deadline, TimeUp, time_up_after
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import NOISE, Result, SearchLog, Status, Termination, proves, relative_gap
from solver.search.plan_search import Progress
from solver.study.store import Study


@dataclass(frozen=True)
class FamilyProgress:
    """State of a search over clusters, while one of them is searched.

    within: of the search of the cluster at hand, `now`; None as long as nothing is known.
    """

    clusters: FamilyOverview
    elapsed_s: float
    now: Counts
    within: Progress | None

    @property
    def total(self) -> int:
        """Number of clusters."""
        return self.clusters.closed + len(self.clusters.open)


Report = Callable[[FamilyProgress], None]


class FamilySearch:
    """One search, and what it knows of every cluster.

    bounds: of its step time in ns; None: no plan. closed: clusters whose turn is over, and whether
    bounds alone were not enough. proofs: closings of those on the front; no more is kept of others,
    so that memory does not grow with the search. study: where every closing is kept, and taken from
    if it is known.
    """

    def __init__(
        self, family: Family, measure: Measure, options: SolveOptions, study: Study | None = None
    ) -> None:
        if measure.limited:  # other limits hold on other terms, and a limit has no gap
            options = replace(options, gap=0.0)
        self.family, self.options = family, options
        self.deadline = Deadline(options.time_limit_s)
        self.members = Members(family, options, study)
        self.front = Front(measure, self.members.counts)
        self.bounds: dict[Counts, int | None] = dict.fromkeys(self.members.counts, 0)
        self.closed: dict[Counts, bool] = {}
        self.proofs: dict[Counts, MemberClosing] = {}
        self._packed: set[Counts] = set()

    @property
    def open(self) -> list[Counts]:
        """Those that are not closed."""
        return [counts for counts in self.bounds if self.is_open(counts)]

    def target_ns(self, counts: Counts) -> float:
        """A bound of at least this closes the cluster."""
        return self.front.cutoffs[counts] * (1 - self.options.gap) * (1 - NOISE)

    def is_open(self, counts: Counts) -> bool:
        """Whether the cluster may have a plan that is not dominated, beyond the gap."""
        bound_ns = self.bounds[counts]
        return bound_ns is not None and bound_ns < self.target_ns(counts)

    def next_cluster(self) -> Counts | None:
        """The open cluster not yet searched that may go furthest beyond the front."""
        unsearched = (counts for counts in self.open if counts not in self.closed)
        heap = [(self._rank(counts), counts) for counts in unsearched]
        heapify(heap)
        while heap:
            _, counts = heap[0]
            if counts in self._packed:
                return counts
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

    def _rank(self, counts: Counts) -> tuple[float, ...]:
        """The lower the further the cluster may go; without a front, fast and cheap ones first."""
        bound_ns = self.bounds[counts] or 0
        measure = self.front.measure
        time, cost, *_ = measure.figures(counts, bound_ns, measure.terms(counts)[0])
        return bound_ns / self.front.cutoffs[counts], time * cost

    def take(self, closing: MemberClosing) -> None:
        """Keeps what became known of a cluster."""
        counts, known_ns, bound_ns = closing.counts, self.bounds[closing.counts], closing.bound_ns
        possible = known_ns is not None and bound_ns is not None
        proved_ns = max(known_ns or 0, bound_ns or 0) if possible else None
        self.bounds[counts] = self._within(counts, proved_ns)
        self.closed[counts] = closing.searched
        if closing.found is not None:
            self.front.offer(counts, closing.found[1])
            proofs = self.proofs | {counts: closing}
            self.proofs = {point.counts: proofs[point.counts] for point in self.front.best}

    @property
    def gap(self) -> float | None:
        """How far plans of open clusters may be beyond the front at most; None: any way."""
        shares = []
        for counts, bound_ns in self.bounds.items():
            cutoff_ns = self.front.cutoffs[counts]
            if bound_ns is not None and bound_ns < cutoff_ns * (1 - NOISE):
                shares.append(bound_ns / cutoff_ns)
        return None if 0 in shares else 1 - min(shares, default=1.0)

    def run(self, report: Report | None = None) -> Termination:
        """Closes clusters until none is open or time is up; nothing that is known is lost."""
        with suppress(TimeUp), time_up_after(self.deadline.end_s):
            try:
                for cluster in self.bounds:
                    self.bounds[cluster] = self._within(cluster, self.members.bound_ns(cluster))
                while not self.deadline.over() and (counts := self.next_cluster()) is not None:
                    cutoff_ns = self.front.cutoffs[counts]
                    closing = self.members.known(counts, cutoff_ns)
                    if closing is None:
                        left_s, shown = self.deadline.left_s, self._shown(counts, report)
                        closing = self.members.close(counts, cutoff_ns, left_s, shown)
                        if not self.deadline.over() and not closing.cut_short:
                            self.members.keep(cutoff_ns, closing)
                    self.take(closing)
                    self._note()
                    if closing.interrupted:
                        raise KeyboardInterrupt
                self._note()  # bounds may have closed the others
            except KeyboardInterrupt:
                return Termination.INTERRUPTED
        if not self.open:
            return Termination.CLOSED
        late = self.deadline.over()
        return Termination.TIME_LIMIT if late else Termination.UNFINISHED

    @property
    def overview(self) -> FamilyOverview:
        """What is asked, and how far the search is."""
        still_open, limits = self.open, self.members.family.instance.limits
        return FamilyOverview(
            aim=self.front.measure.aim,
            fewest=self.family.fewest,
            max_step_time_s=limits.max_step_time_s,
            max_cost_usd_per_step=limits.max_cost_usd_per_step,
            closed=len(self.bounds) - len(still_open),
            open=still_open,
            front=len(self.front.best),
            gap=self.gap,
        )

    def _note(self) -> None:
        if self.members.study is not None:
            self.overview.note(self.members.study)

    def _shown(
        self, now: Counts, report: Report | None
    ) -> Callable[[Progress | None], None] | None:
        """Tells what is known of all clusters, with what the search of one of them tells."""
        if report is None:
            return None
        clusters, tell = self.overview, report

        def show(within: Progress | None) -> None:
            tell(FamilyProgress(clusters, self.deadline.elapsed_s, now, within))

        show(None)
        return show


def front_of(
    family: Family,
    aim: Aim,
    options: SolveOptions,
    kept: Study | None = None,
    report: Callable[[FamilyProgress], None] | None = None,
) -> FrontDocument:
    """The sealed front file of a search over the clusters; `kept` is what it goes on from."""
    search = FamilySearch(family, Measure(family, aim), options, kept)
    return outcome(search, search.run(report))


def outcome(search: FamilySearch, termination: Termination) -> FrontDocument:
    """The sealed front file: everything that a search knows when it has ended."""
    terms = dict[Counts, list[Terms]]()
    for point in search.front.best:
        terms.setdefault(point.counts, []).append(point.terms)
    return sealed(
        FrontDocument(
            aim=search.front.measure.aim,
            termination=termination,
            requested_gap=search.options.gap,
            seed=search.options.seed,
            runtime_s=search.deadline.elapsed_s,
            points=tuple(_point(search, counts, rented) for counts, rented in terms.items()),
            clusters=tuple(_standing(search, counts, counts in terms) for counts in search.bounds),
            family=search.family,
        )
    )


def _point(search: FamilySearch, counts: Counts, rented: list[Terms]) -> PointDocument:
    """With the plan on the nodes that it uses; the others of the point are idle."""
    closing = search.proofs[counts]
    assert closing.found is not None, "a point has a plan"
    plan, step_time_ns = closing.found
    used = plan.config.nodes_used
    of_used = (record for record in closing.records if record.config.nodes_used == used)
    records = tuple(record.but(config=member_config(record.config)) for record in of_used)
    bounds = [record.bound_ns for record in records if record.bound_ns is not None]
    bound = min([step_time_ns, *bounds]) if records else 0
    gap, asked = relative_gap(step_time_ns, bound), search.options.gap
    closed = bool(records) and not any(record.reason == "open" for record in records)
    result = Result(
        instance=search.members.family.member(used),
        status=Status.OPTIMAL if closed and proves(gap, asked) else Status.FEASIBLE,
        termination=Termination.CLOSED if closed else Termination.UNFINISHED,
        plan=member_plan(search.family, plan),
        step_time_ns=step_time_ns,
        objective=step_time_ns,
        bound=bound,
        runtime_s=closing.runtime_s,
        log=SearchLog(records),
        method=search.options.method,
        requested_gap=asked,
    )
    family, step_s = search.family.instance, seconds(step_time_ns)
    return PointDocument(
        nodes=counts,
        nodes_used=used,
        terms=tuple(TermsDocument.of(family, terms, step_s) for terms in rented),
        plan=build_document(result, search.options),
    )


def _standing(search: FamilySearch, counts: Counts, on_front: bool) -> ClusterRecord:
    points, bound_ns = search.front.points.get(counts), search.bounds[counts]
    record = ClusterRecord(
        nodes=counts,
        standing="open" if search.is_open(counts) else "infeasible",
        closed_by="search" if search.closed.get(counts) else "bounds",
        step_time_ns=None if points is None else points[0].step_time_ns,
        bound_ns=bound_ns,
    )
    if bound_ns is None or record.standing == "open":
        return record
    target_ns = math.ceil(search.target_ns(counts))
    record = record.but(bound_ns=min(bound_ns, target_ns))
    if on_front:
        return record.but(standing="best")
    by = search.front.dominating(counts, bound_ns)
    return record.but(standing="dominated", dominated_by=by.counts if by else None)
