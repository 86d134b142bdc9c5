"""What a search over clusters has found: a result for every point, a standing for every cluster."""

import math

from formulations.costs.renting import Terms
from formulations.instance.family import Counts
from solver.clusters.member import member_plan, member_shape
from solver.clusters.search import FamilySearch
from solver.front_document import ClusterRecord, FamilyPoint, FamilyResult
from solver.result import Result, SearchLog, Status, Termination, proves, relative_gap


def outcome(search: FamilySearch, termination: Termination) -> FamilyResult:
    """Everything that a search knows when it has ended."""
    clusters, terms = search.clusters, dict[Counts, list[Terms]]()
    for point in clusters.front.best:
        terms.setdefault(point.counts, []).append(point.terms)
    return FamilyResult(
        family=search.family,
        options=search.options,
        termination=termination,
        points=tuple(_point(search, counts, tuple(rented)) for counts, rented in terms.items()),
        clusters=tuple(_standing(search, counts, counts in terms) for counts in clusters.bounds),
        runtime_s=search.deadline.elapsed_s,
    )


def _point(search: FamilySearch, counts: Counts, terms: tuple[Terms, ...]) -> FamilyPoint:
    """With the result on the nodes that its plan uses; the others of the point are idle."""
    closing = search.clusters.proofs[counts]
    assert closing.found is not None, "a point has a plan"
    plan, step_time_ns = closing.found
    used = plan.shape.nodes_used
    records = tuple(
        one.model_copy(update={"shape": member_shape(one.shape)})
        for one in closing.records
        if one.shape.nodes_used == used
    )
    bounds = [one.bound_ns for one in records if one.bound_ns is not None]
    bound = min([step_time_ns, *bounds]) if records else 0
    gap, asked = relative_gap(step_time_ns, bound), search.options.gap
    closed = bool(records) and not any(one.reason == "open" for one in records)
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
    return FamilyPoint(counts, used, terms, result)


def _standing(search: FamilySearch, counts: Counts, on_front: bool) -> ClusterRecord:
    known, bound_ns = search.clusters.front.points.get(counts), search.clusters.bounds[counts]
    record = ClusterRecord(
        nodes=counts,
        standing="open" if search.clusters.is_open(counts) else "infeasible",
        closed_by="search" if search.clusters.closed.get(counts) else "bounds",
        step_time_ns=None if known is None else known[0].step_time_ns,
        bound_ns=bound_ns,
    )
    if bound_ns is None or record.standing == "open":
        return record
    target_ns = math.ceil(search.clusters.target_ns(counts))
    update: dict[str, object] = {"bound_ns": min(bound_ns, target_ns)}
    if on_front:
        return record.model_copy(update=update | {"standing": "best"})
    by = search.clusters.front.dominating(counts, bound_ns)
    return record.model_copy(
        update=update | {"standing": "dominated", "dominated_by": by.counts if by else None}
    )
