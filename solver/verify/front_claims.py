"""What a front file claims of its clusters, proved again shape by shape.

No plan of a cluster is faster than its bound: that is claimed of every shape, and proved as the log
of a plan file is. The shapes of a point's own plan are left to its plan file.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product
from math import floor

from formulations.instance import Instance
from formulations.space import Nodes, PlanSpace
from formulations.units import NANOSECONDS_PER_SECOND
from solver.front_document import FrontDocument
from solver.verify.bounds import Prover
from solver.verify.cascade import Claim, Effort, quick_verdicts, verdicts
from solver.verify.figures import shortest_refused_ns
from solver.verify.findings import NOISE, Findings
from solver.verify.longest import ANY_TIME_NS
from solver.verify.renting import HOUR_S, Rented, offered

#: Limits that are not of plans where terms are chosen.
LIMITS_OF_TERMS = ("max_price_usd_per_hour", "max_step_time_s", "max_cost_usd_per_step")


def uses(document: FrontDocument, nodes: Nodes) -> list[Nodes]:
    """What plans of a cluster use: all its nodes; some may idle where it has the fewest allowed.

    Fewer of the others leave a smaller cluster, which has the same plans.
    """
    idle = document.family.instance.search.idle_nodes
    ranges = [
        range(count + 1) if idle and count == least else (count,)
        for count, least in zip(nodes, document.family.fewest, strict=True)
    ]
    return [used for used in product(*ranges) if any(used)]


def fastest(instance: Instance) -> Instance:
    """The instance with step time as its objective: of one cluster only that matters.

    Where terms are chosen limits are of them and of steps that are kept, not of plans.
    """
    limits, objective = instance.limits, instance.objective
    if objective.minimize == "cost_per_useful_sequence":
        limits = limits.model_copy(update=dict.fromkeys(LIMITS_OF_TERMS))
    objective = objective.model_copy(update={"minimize": "step_time"})
    return instance.model_copy(update={"objective": objective, "limits": limits})


def refused_ns(instance: Instance, nodes: Nodes, own: Rented) -> int | None:
    """Shortest step that breaks a limit on these nodes rented so; None if none does."""
    if instance.objective.minimize != "cost_per_useful_sequence":
        return shortest_refused_ns(instance, nodes)
    limits, longest_s = instance.limits, list[float]()
    if limits.max_step_time_s is not None:
        longest_s.append(limits.max_step_time_s)
    if limits.max_cost_usd_per_step is not None and own.usd_per_hour:
        longest_s.append(limits.max_cost_usd_per_step / own.usd_per_hour * HOUR_S)
    if not longest_s:
        return None
    return floor(min(longest_s) * NANOSECONDS_PER_SECOND / own.slowdown * (1 + NOISE)) + 1


def refused_on_all_terms_ns(instance: Instance, nodes: Nodes) -> int | None:
    """Shortest step that is beyond limits on any terms; None if some have no limit."""
    known = [refused_ns(instance, nodes, own) for _, own in offered(instance, nodes)]
    limited = [ns for ns in known if ns is not None]
    return max(limited) if len(limited) == len(known) else None


def _claims(document: FrontDocument, space: PlanSpace) -> Iterator[tuple[Nodes, Claim]]:
    """What the clusters claim of all their shapes, those of the points' own plans left out."""
    proved = {(point.nodes, point.nodes_used) for point in document.points}
    for i, record in enumerate(document.clusters):
        refused_ns = refused_on_all_terms_ns(document.family.instance, record.nodes)
        known = [ns for ns in (record.bound_ns, refused_ns) if ns is not None]
        below_ns = min([*known, ANY_TIME_NS])
        for used in uses(document, record.nodes):
            if (record.nodes, used) in proved:
                continue
            for shape in space.shapes_of(used):
                yield record.nodes, Claim(i, shape, below_ns, record.bound_ns is None)


def prove(document: FrontDocument, findings: Findings, effort: Effort) -> None:
    """Proves the claims of all clusters."""
    instance = fastest(document.family.instance)
    search = instance.search.model_copy(update={"idle_nodes": True})
    space = PlanSpace(instance.model_copy(update={"search": search}))
    prover = Prover(space)
    known = list(_claims(document, space))
    claims = [replace(claim, index=i) for i, (_, claim) in enumerate(known)]
    left = set(range(len(claims)))
    quick = quick_verdicts(prover, claims) if effort.prove == "quick" else ()
    searched = verdicts(prover, claims, effort) if effort.prove == "all" else ()
    try:
        for verdict in chain(quick, searched):
            nodes = known[verdict.claim.index][0]
            if verdict.plan is not None:
                found = f"no plan below {verdict.claim.below_ns} ns"
                findings.refuse(f"cluster {nodes}", found, f"one of {verdict.step_time_ns} ns")
            if not verdict.open:
                left.discard(verdict.claim.index)
    except KeyboardInterrupt:
        findings.note("nothing more: interrupted")
    clusters = {known[i][0] for i in left}
    shown = len(document.clusters) - len(clusters)
    findings.note(f"{len(claims)} shapes of clusters: {len(claims) - len(left)} proved again")
    findings.note(f"{shown} clusters proved again to stand where they stand")
    if clusters and effort.prove == "all":
        findings.reserve(f"{len(clusters)} of {len(document.clusters)} clusters")
