"""All checks of one front file: its points by `verify_document`, all other clusters by claims."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from time import monotonic

from formulations.instance import Instance
from formulations.space import Nodes
from formulations.units import seconds
from solver.front_document import FrontDocument, PointDocument, TermsDocument
from solver.verify.cascade import Effort
from solver.verify.findings import Findings, Verification, verification
from solver.verify.front_claims import fastest, prove, refused_ns, uses
from solver.verify.front_standings import check_standings, step_time_ns
from solver.verify.plan_file import verify_document
from solver.verify.renting import HOUR_S, Rented, offered


def verify_front(document: FrontDocument, effort: Effort | None = None) -> Verification:
    """Checks points, figures and claims of a front file against its own family of instances.

    Uses no code of models, engines or search. Never raises for a document that could be read.
    """
    asked = effort or Effort()
    return verification(document, lambda findings: _check_content(document, findings, asked))


def _check_content(document: FrontDocument, findings: Findings, effort: Effort) -> None:
    _check_members(document, findings)
    limit_s, begin = effort.time_limit_s, monotonic()

    def rest() -> Effort:
        """What is left of the time for all."""
        left_s = None if limit_s is None else max(0.0, limit_s - (monotonic() - begin))
        return replace(effort, time_limit_s=left_s)

    for i, point in enumerate(document.points):
        _check_point(document, f"points[{i}]", point, findings, rest())
    check_standings(document, findings)
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
    if document.aim == "subsets":
        fewest, text = document.family.fewest, "0 of every group, which subsets may leave out"
        findings.require(not any(fewest), "family.fewest", fewest, text)
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
    instance = fastest(document.family.instance).on(used)
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
    step_ns = step_time_ns(point)
    if step_ns is None:
        findings.refuse(f"{field}.plan.step_time_s", None, "a plan")
        return
    known = dict(offered(document.family.instance, point.nodes))
    for i, terms in enumerate(point.terms):
        rented = known.get(terms.on_spot)
        if rented is None:
            findings.refuse(f"{field}.terms[{i}].on_spot", terms.on_spot, "terms that are offered")
            continue
        refused = refused_ns(document.family.instance, point.nodes, rented)
        if refused is not None:
            findings.require(step_ns < refused, f"{field}.terms[{i}]", step_ns, f"below {refused}")
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
