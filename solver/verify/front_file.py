"""All checks of one front file: its points by `verify_document`, all other clusters by claims.

A point stands for a cluster if none of its figures is above those of the cluster's plans, which are
known by a step time that none of them is below; up to the gap that was asked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from time import monotonic

from formulations.instance import Instance
from formulations.units import NANOSECONDS_PER_SECOND, seconds
from solver.front_document import ClusterRecord, FrontDocument, PointDocument, TermsDocument
from solver.verify.cascade import Effort
from solver.verify.findings import NOISE, Findings, Verification
from solver.verify.front_claims import fastest, prove, uses
from solver.verify.node_choices import Nodes
from solver.verify.plan_file import verify_document
from solver.verify.renting import HOUR_S, Rented, offered
from solver.verify.sealed import verification


def verify_front(document: FrontDocument, effort: Effort | None = None) -> Verification:
    """Checks points, figures and claims of a front file against its own family of instances.

    Uses no code of models, engines or search. Never raises for a document that could be read.
    """

    def check(document: FrontDocument, findings: Findings) -> None:
        _check_content(document, findings, effort or Effort())

    return verification(document, check)


def _check_content(document: FrontDocument, findings: Findings, effort: Effort) -> None:
    _check_members(document, findings)
    limit_s, begin = effort.time_limit_s, monotonic()

    def rest() -> Effort:
        """What is left of the time for all."""
        left_s = None if limit_s is None else max(0.0, limit_s - (monotonic() - begin))
        return replace(effort, time_limit_s=left_s)

    for i, point in enumerate(document.points):
        _check_point(document, f"points[{i}]", point, findings, rest())
    _check_order(document, findings)
    listed = list(_listed(document))
    for i, record in enumerate(document.clusters):
        _check_standing(document, f"clusters[{i}]", record, listed, findings)
    ended = document.termination == "closed"
    findings.equal("termination is closed", ended, not document.num_open)
    if effort.prove != "nothing" and not findings.num_problems:
        prove(document, findings, rest())


def _members(document: FrontDocument) -> Iterator[Nodes]:
    """Every cluster of the family within the limit on rent."""
    instance = document.family.instance
    ends = zip(document.family.fewest, instance.cluster.groups, strict=True)
    for nodes in product(*(range(least, group.nodes + 1) for least, group in ends)):
        if any(nodes) and offered(instance, nodes):
            yield nodes


def _check_members(document: FrontDocument, findings: Findings) -> None:
    expected, found = set(_members(document)), [one.nodes for one in document.clusters]
    same = len(found) == len(expected) and set(found) == expected
    findings.require(same, "clusters", f"{len(found)}", f"each of {len(expected)} once")
    listed = sorted(point.nodes for point in document.points)
    known = sorted(one.nodes for one in document.clusters if one.standing in ("best", "open"))
    best = sorted(one.nodes for one in document.clusters if one.standing == "best")
    fits = set(best) <= set(listed) <= set(known) and len(set(listed)) == len(listed)
    findings.require(fits, "points", f"{listed}", f"the best clusters, {best}, once each")
    findings.note(f"{len(expected)} clusters")


def _own_instance(document: FrontDocument, used: Nodes) -> Instance:
    """The instance whose nodes are just those, all in use."""
    instance = fastest(document.family.instance)
    groups = tuple(
        group.model_copy(update={"nodes": count})
        for group, count in zip(instance.cluster.groups, used, strict=True)
        if count
    )
    cluster = instance.cluster.with_groups(groups)
    search = instance.search.model_copy(update={"idle_nodes": False})
    return instance.model_copy(update={"cluster": cluster, "search": search})


def _check_point(
    document: FrontDocument, field: str, point: PointDocument, findings: Findings, effort: Effort
) -> None:
    """The plan file, that it is of this cluster, and what the cluster costs."""
    inside = point.nodes_used in uses(document, point.nodes)
    allowed = f"what plans of {point.nodes} use"
    if not findings.require(inside, f"{field}.nodes_used", point.nodes_used, allowed):
        return
    own = _own_instance(document, point.nodes_used)
    same = point.plan.instance == own
    findings.require(same, f"{field}.plan.instance", "another", "the family's with these nodes")
    found = verify_document(point.plan, replace(effort, show=lambda done, total: None))
    for problem in found.problems:
        findings.refuse(f"{field}.plan", problem, "a plan file that verify accepts")
    if not found.complete and effort.prove == "all":
        findings.reserve(f"{field}: not all that its plan file claims is proved")
    step_ns = _step_ns(point)
    if step_ns is None:
        findings.refuse(f"{field}.plan.step_time_s", None, "a plan")
        return
    known = dict(offered(document.family.instance, point.nodes))
    for i, terms in enumerate(point.terms):
        rented = known.get(terms.on_spot)
        if rented is None:
            findings.refuse(f"{field}.terms[{i}].on_spot", terms.on_spot, "terms that are offered")
            continue
        _check_terms(
            document.family.instance, f"{field}.terms[{i}]", terms, rented, step_ns, findings
        )


def _check_terms(
    instance: Instance,
    field: str,
    terms: TermsDocument,
    rented: Rented,
    step_ns: int,
    findings: Findings,
) -> None:
    """What a step of this length comes to, with all that preemptions cost."""
    kept_s = seconds(step_ns) * rented.slowdown
    cost, steps = rented.usd_per_hour * kept_s / HOUR_S, instance.objective.steps
    figures = {
        "price_usd_per_hour": rented.usd_per_hour,
        "availability": 1 / rented.slowdown,
        "sequences_per_s": instance.workload.global_batch / kept_s,
        "cost_usd_per_step": cost,
        "training_cost_usd": None if steps is None else cost * steps,
    }
    for name, figure in figures.items():
        findings.close(f"{field}.{name}", getattr(terms, name), figure)


def _step_ns(point: PointDocument) -> int | None:
    """Step time of a point's plan, whose seconds are whole nanoseconds."""
    step_s = point.plan.step_time_s
    return None if step_s is None else round(step_s * NANOSECONDS_PER_SECOND)


def _figures(
    document: FrontDocument, nodes: Nodes, step_ns: float, rented: Rented
) -> tuple[float, ...]:
    """What clusters are compared by, on these terms, the less the better."""
    if document.aim == "subsets":
        groups = document.family.instance.cluster.groups
        some = [count > 0 for count in nodes]
        whole = [count == group.nodes for count, group in zip(nodes, groups, strict=True)]
        return step_ns, sum(nodes), *some, *whole
    kept_ns = step_ns * rented.slowdown
    time, cost = document.aim != "money", document.aim != "time"
    return kept_ns * time, kept_ns * rented.usd_per_hour * cost


def _listed(document: FrontDocument) -> Iterator[tuple[Nodes, tuple[float, ...]]]:
    """Figures of all points, on each of their terms."""
    for point in document.points:
        known = dict(offered(document.family.instance, point.nodes))
        for terms in point.terms:
            if terms.on_spot in known:
                rented, step_ns = known[terms.on_spot], _step_ns(point) or 0
                yield point.nodes, _figures(document, point.nodes, step_ns, rented)


def _check_order(document: FrontDocument, findings: Findings) -> None:
    """No point is as good as another in all figures and better in one."""
    places = list(_listed(document))
    for nodes, figures in places:
        for other, others in places:
            worse = figures != others and all(a <= b for a, b in zip(figures, others, strict=True))
            findings.require(not worse, f"points: {other}", "on the front", f"dominated by {nodes}")


def _check_standing(
    document: FrontDocument,
    field: str,
    record: ClusterRecord,
    listed: Sequence[tuple[Nodes, tuple[float, ...]]],
    findings: Findings,
) -> None:
    """That the bound of a cluster, if it holds, shows where the cluster stands."""
    points = {point.nodes: point for point in document.points}
    if record.standing == "infeasible":
        findings.require(record.bound_ns is None, f"{field}.bound_ns", record.bound_ns, "none")
        return
    if record.bound_ns is None:
        findings.refuse(f"{field}.bound_ns", None, "a bound in ns")
        return
    own = points.get(record.nodes)
    if own is not None:
        findings.equal(f"{field}.step_time_ns", record.step_time_ns, _step_ns(own))
        proved_ns = (own.plan.lower_bound_s or 0.0) * NANOSECONDS_PER_SECOND * (1 + NOISE)
        text = f"at most {proved_ns}, the bound of the point's plan"
        findings.require(record.bound_ns <= proved_ns, f"{field}.bound_ns", record.bound_ns, text)
    if record.standing == "open":
        return
    by = own if record.standing == "best" else points.get(record.dominated_by or ())
    if by is None:
        findings.refuse(f"{field}.dominated_by", record.dominated_by, "nodes of a point")
        return
    reaching = [
        {nodes for nodes, figures in listed if _reaches(document, record, rented, figures)}
        for _, rented in offered(document.family.instance, record.nodes)
    ]
    text = f"a bound from which on {by.nodes} dominates"
    named = all(reaching) and any(by.nodes in some for some in reaching)
    findings.require(named, f"{field}.bound_ns", record.bound_ns, text)


def _reaches(
    document: FrontDocument, record: ClusterRecord, rented: Rented, theirs: tuple[float, ...]
) -> bool:
    """Whether no plan of a cluster on these terms has a smaller figure than a point, by its bound.

    Up to the gap that was asked for, but for figures that do not grow with the step time.
    """
    bound_ns = record.bound_ns or 0
    ours = _figures(document, record.nodes, bound_ns, rented)
    still = _figures(document, record.nodes, 2.0 * bound_ns, rented)
    shares = [
        1.0 if a == b else 1 - document.requested_gap for a, b in zip(ours, still, strict=True)
    ]
    return all(
        mine >= its * share * (1 - NOISE)
        for mine, its, share in zip(ours, theirs, shares, strict=True)
    )
