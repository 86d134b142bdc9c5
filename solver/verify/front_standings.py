"""Where the clusters of a front file stand, if its points and the bounds of clusters hold.

A point stands for a cluster if none of its figures is above those of the cluster's plans, which are
known by a step time that none of them is below; up to the gap that was asked for. Where the nodes
of a cluster may be rented on several terms, this holds for all of them.
"""

from collections.abc import Iterator, Sequence

from formulations.instance import Instance
from formulations.space import Nodes
from formulations.units import NANOSECONDS_PER_SECOND
from solver.front_document import ClusterRecord, FrontDocument, PointDocument
from solver.verify.findings import NOISE, Findings
from solver.verify.front_claims import refused_ns
from solver.verify.renting import Rented, offered

Figures = tuple[float, ...]


def check_standings(document: FrontDocument, findings: Findings) -> None:
    """That no point dominates another, and that points dominate what they are said to."""
    listed = list(_listed(document))
    _check_order(listed, findings)
    for i, record in enumerate(document.clusters):
        _check_standing(document, f"clusters[{i}]", record, listed, findings)


def step_time_ns(point: PointDocument) -> int | None:
    """Step time of a point's plan, whose seconds are whole nanoseconds."""
    step_s = point.plan.step_time_s
    return None if step_s is None else round(step_s * NANOSECONDS_PER_SECOND)


def _figures(document: FrontDocument, nodes: Nodes, step_ns: float, rented: Rented) -> Figures:
    """What clusters are compared by, on these terms, the less the better."""
    if document.aim == "subsets":
        groups = document.family.instance.cluster.groups
        some = [count > 0 for count in nodes]
        whole = [count == group.nodes for count, group in zip(nodes, groups, strict=True)]
        return step_ns, sum(nodes), *some, *whole
    kept_ns = step_ns * rented.slowdown
    time, cost = document.aim != "money", document.aim != "time"
    return kept_ns * time, kept_ns * rented.usd_per_hour * cost


def _listed(document: FrontDocument) -> Iterator[tuple[Nodes, Figures]]:
    """Figures of all points, on each of their terms."""
    for point in document.points:
        known = dict(offered(document.family.instance, point.nodes))
        for terms in point.terms:
            if terms.on_spot in known:
                rented, step_ns = known[terms.on_spot], step_time_ns(point) or 0
                yield point.nodes, _figures(document, point.nodes, step_ns, rented)


def _check_order(listed: Sequence[tuple[Nodes, Figures]], findings: Findings) -> None:
    """No point is as good as another in all figures and better in one."""
    for nodes, figures in listed:
        for other, others in listed:
            worse = figures != others and all(a <= b for a, b in zip(figures, others, strict=True))
            findings.require(not worse, f"points: {other}", "on the front", f"dominated by {nodes}")


def _check_standing(
    document: FrontDocument,
    field: str,
    record: ClusterRecord,
    listed: Sequence[tuple[Nodes, Figures]],
    findings: Findings,
) -> None:
    """That the bound of a cluster, if it holds, shows where the cluster stands."""
    points = {point.nodes: point for point in document.points}
    if record.standing == "infeasible":
        for name in ("bound_ns", "step_time_ns"):
            found = getattr(record, name)
            findings.require(found is None, f"{field}.{name}", found, "none")
        return
    if record.bound_ns is None:
        findings.refuse(f"{field}.bound_ns", None, "a bound in ns")
        return
    found = record.step_time_ns
    text = f"at least {record.bound_ns}, the bound"
    findings.require(
        found is None or found >= record.bound_ns, f"{field}.step_time_ns", found, text
    )
    own = points.get(record.nodes)
    if own is not None:
        findings.equal(f"{field}.step_time_ns", record.step_time_ns, step_time_ns(own))
        proved_ns = (own.plan.lower_bound_s or 0.0) * NANOSECONDS_PER_SECOND * (1 + NOISE)
        text = f"at most {proved_ns}, the bound of the point's plan"
        findings.require(record.bound_ns <= proved_ns, f"{field}.bound_ns", record.bound_ns, text)
    if record.standing == "open":
        return
    by = own if record.standing == "best" else points.get(record.dominated_by or ())
    if by is None:
        findings.refuse(f"{field}.dominated_by", record.dominated_by, "nodes of a point")
        return
    instance = document.family.instance
    reaching = [
        _dominating(document, record, rented, listed)
        for _, rented in offered(instance, record.nodes)
        if _may_be_within(instance, record, rented)
    ]
    text = f"a bound from which on {by.nodes} dominates"
    named = all(reaching) and any(by.nodes in some for some in reaching)
    findings.require(named, f"{field}.bound_ns", record.bound_ns, text)


def _may_be_within(instance: Instance, record: ClusterRecord, rented: Rented) -> bool:
    """Whether plans no faster than the bound may be within limits on these terms, but for noise.

    Limits of plans are not asked: a bound beyond them would be none.
    """
    chooses = instance.objective.minimize == "cost_per_useful_sequence"
    refused = refused_ns(instance, record.nodes, rented) if chooses else None
    return refused is None or (record.bound_ns or 0) < refused * (1 - 2 * NOISE)


def _dominating(
    document: FrontDocument,
    record: ClusterRecord,
    rented: Rented,
    listed: Sequence[tuple[Nodes, Figures]],
) -> set[Nodes]:
    """Points than which no plan of a cluster on these terms has a smaller figure, by its bound.

    Up to the gap that was asked for, but for figures that do not grow with the step time.
    """
    bound_ns = record.bound_ns or 0
    ours = _figures(document, record.nodes, bound_ns, rented)
    still = _figures(document, record.nodes, 2.0 * bound_ns, rented)
    shares = [
        1.0 if a == b else 1 - document.requested_gap for a, b in zip(ours, still, strict=True)
    ]
    return {
        nodes
        for nodes, theirs in listed
        if all(
            mine >= its * share * (1 - NOISE)
            for mine, its, share in zip(ours, theirs, shares, strict=True)
        )
    }
