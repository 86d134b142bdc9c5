"""All checks of one front file: its points by `verify_document`, all other clusters by claims.

Claims. No plan of a cluster is faster than its bound: that is claimed of every configuration, and
proved as the log of a plan file is. The configurations of a point's own plan are left to its plan
file.

Standings. A point stands for a cluster if none of its figures is above those of the cluster's
plans, which are known by a step time that none of them is below; up to the gap that was asked for.
Where the nodes of a cluster may be rented on several terms, this holds for all of them: those that
others beat in useful time and money are beaten by what beats these.
"""

from collections import Counter
from dataclasses import replace
from functools import cached_property
from itertools import permutations
from math import floor
from operator import ge, le

import numpy as np

from formulations.costs.renting import Terms, chooses_terms, worthwhile_terms
from formulations.instance import Instance
from formulations.instance.instance import Counts
from formulations.space import PlanSpace, configs_of
from formulations.units import NANOSECONDS_PER_SECOND, SECONDS_PER_HOUR, seconds
from solver.front_document import ClusterRecord, FrontDocument, PointDocument, TermsDocument
from solver.interrupt import Deadline
from solver.result import longest_step_ns
from solver.verify.bounds import ANY_TIME_NS, Prover
from solver.verify.cascade import Claim, Verdict
from solver.verify.findings import NOISE, Effort, Findings, verification
from solver.verify.plan_file import settle_claims, verify_document

Figures = tuple[float, ...]  #: what clusters are compared by, the less the better

#: Limits that are not of plans where terms are chosen.
LIMITS_OF_TERMS = ("max_price_usd_per_hour", "max_step_time_s", "max_cost_usd_per_step")


@verification
def verify_front(document: FrontDocument, findings: Findings, effort: Effort) -> None:
    """Checks points, figures and claims of a front file against its own family of instances."""
    clock, front = Deadline(effort.time_limit_s), _Front(document, findings)
    front.check_members()
    for i, point in enumerate(document.points):
        silent = replace(effort, time_limit_s=clock.left_s, show=lambda done, total: None)
        front.check_point(f"points[{i}]", point, silent)
    front.check_standings()
    closed = document.termination == "closed"
    findings.equal("termination is closed", closed, not document.num_open)
    if effort.prove != "nothing" and not findings.problems:
        front.prove(replace(effort, time_limit_s=clock.left_s))


def step_time_ns(point: PointDocument) -> int | None:
    """Step time of a point's plan, whose seconds are whole nanoseconds."""
    step_s = point.plan.step_time_s
    return None if step_s is None else round(step_s * NANOSECONDS_PER_SECOND)


def refused_ns(instance: Instance, nodes: Counts, terms: Terms) -> int | None:
    """Shortest step that breaks a limit on these nodes rented so; None if none does."""
    if not chooses_terms(instance):
        longest_ns = longest_step_ns(instance, nodes)
        return None if longest_ns is None else longest_ns + 1
    limits, longest_s = instance.limits, list[float]()
    if limits.max_step_time_s is not None:
        longest_s.append(limits.max_step_time_s)
    if limits.max_cost_usd_per_step is not None and terms.usd_per_hour:
        longest_s.append(limits.max_cost_usd_per_step / terms.usd_per_hour * SECONDS_PER_HOUR)
    if not longest_s:
        return None
    return floor(min(longest_s) * NANOSECONDS_PER_SECOND / terms.slowdown * (1 + NOISE)) + 1


class _Front:
    """The checks of one front file; `listed` are figures of all points, on each of their terms."""

    def __init__(self, document: FrontDocument, findings: Findings) -> None:
        self.document, self.findings, self.family = document, findings, document.family
        self.instance = self.family.instance
        # Of one cluster only step time matters. Where terms are chosen limits are of them and of
        # steps that are kept, not of plans.
        limits = dict.fromkeys(LIMITS_OF_TERMS if chooses_terms(self.instance) else ())
        timed = {"objective": {"minimize": "step_time"}, "limits": limits}
        self.fastest = self.family.but(instance=timed)

    @cached_property
    def listed(self) -> list[tuple[Counts, Figures]]:
        """Figures of all points, on each of their terms."""
        return [
            (point.nodes, self.figures(point.nodes, step_time_ns(point) or 0, terms))
            for point in self.document.points
            for terms in worthwhile_terms(self.instance, point.nodes)
            if terms.on_spot in {stated.on_spot for stated in point.terms}
        ]

    def figures(self, nodes: Counts, step_ns: float, terms: Terms) -> Figures:
        """What clusters are compared by, on these terms, the less the better."""
        aim = self.document.aim
        if aim == "subsets":
            groups = self.instance.cluster.groups
            used = [count > 0 for count in nodes]
            all_used = [count == group.nodes for count, group in zip(nodes, groups, strict=True)]
            return step_ns, sum(nodes), *used, *all_used
        kept_ns = step_ns * terms.slowdown
        time, cost = aim != "money", aim != "time"
        return kept_ns * time, kept_ns * terms.usd_per_hour * cost

    def check_members(self) -> None:
        """Every cluster of the family within the limit on rent, and points for the best of them."""
        document, findings, family = self.document, self.findings, self.family
        if document.aim == "subsets":
            text = "0 of every group, which subsets may leave out"
            findings.require(not any(family.fewest), "family.fewest", family.fewest, text)
        expected = [nodes for nodes in family.members() if worthwhile_terms(family.instance, nodes)]
        clusters = [record.nodes for record in document.clusters]
        same = Counter(clusters) == Counter(expected)
        findings.require(same, "clusters", len(clusters), f"each of {len(expected)} once")
        listed = sorted(point.nodes for point in document.points)
        standings = [(record.standing, record.nodes) for record in document.clusters]
        possible = {nodes for standing, nodes in standings if standing in ("best", "open")}
        best = sorted(nodes for standing, nodes in standings if standing == "best")
        fits = set(best) <= set(listed) <= possible and len(set(listed)) == len(listed)
        findings.require(fits, "points", listed, f"the best clusters, {best}, once each")
        findings.note(f"{len(expected)} clusters")

    def check_point(self, field: str, point: PointDocument, effort: Effort) -> None:
        """The plan file, that it is of this cluster, and what the cluster costs."""
        findings, instance = self.findings, self.instance
        inside = point.nodes_used in self.fastest.uses(point.nodes)
        text = f"what plans of {point.nodes} use"
        if not findings.require(inside, f"{field}.nodes_used", point.nodes_used, text):
            return
        same = point.plan.instance == self.fastest.member(point.nodes_used)
        findings.require(same, f"{field}.plan.instance", "another", "the family's with these nodes")
        checked = verify_document(point.plan, effort)
        for problem in checked.problems:
            findings.refuse(f"{field}.plan", problem, "a plan file that verify accepts")
        if not checked.complete and effort.prove == "all":
            findings.reserve(f"{field}: not all that its plan file claims is proved")
        step_ns = step_time_ns(point)
        if step_ns is None:
            findings.refuse(f"{field}.plan.step_time_s", None, "a plan")
            return
        offered = {terms.on_spot: terms for terms in worthwhile_terms(instance, point.nodes)}
        for i, stated in enumerate(point.terms):
            terms, where = offered.get(stated.on_spot), f"{field}.terms[{i}]"
            if terms is None:
                findings.refuse(f"{where}.on_spot", stated.on_spot, "terms that no others beat")
                continue
            refused = refused_ns(instance, point.nodes, terms)
            if refused is not None:
                findings.require(step_ns < refused, where, step_ns, f"below {refused}")
            expected = TermsDocument.of(instance, terms, seconds(step_ns))
            findings.compare(where, stated, expected)

    def prove(self, effort: Effort) -> None:
        """Proves what clusters claim of all configurations but those of the points' own plans."""
        document, findings, instance = self.document, self.findings, self.instance
        space = PlanSpace(self.fastest.instance.but(search={"idle_nodes": True}))
        in_plan_files = {(point.nodes, point.nodes_used) for point in document.points}
        nodes_of, claims = list[Counts](), list[Claim]()
        for record in document.clusters:
            terms = worthwhile_terms(instance, record.nodes)
            refused = [refused_ns(instance, record.nodes, rented) for rented in terms]
            limits = [ns for ns in refused if ns is not None]
            bounds = [ANY_TIME_NS] if record.bound_ns is None else [ANY_TIME_NS, record.bound_ns]
            if len(limits) == len(refused):
                bounds.append(max(limits))  # beyond limits on any terms
            below_ns = min(bounds)
            for used in self.fastest.uses(record.nodes):
                if (record.nodes, used) not in in_plan_files:
                    for config in configs_of(space.instance, used):
                        claims.append(Claim(len(claims), config, below_ns, record.bound_ns is None))
                        nodes_of.append(record.nodes)

        def refuse(verdict: Verdict) -> None:
            field = f"cluster {nodes_of[verdict.claim.index]}"
            claimed = f"no plan below {verdict.claim.below_ns} ns"
            findings.refuse(field, claimed, f"one of {verdict.step_time_ns} ns")

        at_word, to_prove = (claims, []) if effort.prove == "quick" else ([], claims)
        _, unproved = settle_claims(Prover(space), at_word, to_prove, effort, findings, refuse)
        clusters = {nodes_of[i] for i in unproved}
        shown = len(document.clusters) - len(clusters)
        findings.note(
            f"{len(claims)} configurations of clusters: {len(claims) - len(unproved)} proved again"
        )
        findings.note(f"{shown} clusters proved again to stand where they stand")
        if clusters and effort.prove == "all":
            findings.reserve(f"{len(clusters)} of {len(document.clusters)} clusters")

    def check_standings(self) -> None:
        """That no point dominates another, and that points dominate what they are said to."""
        for (nodes, figures), (behind, worse) in permutations(self.listed, 2):
            dominates = figures != worse and all(map(le, figures, worse))
            text = f"dominated by {nodes}"
            self.findings.require(not dominates, f"points: {behind}", "on the front", text)
        for i, record in enumerate(self.document.clusters):
            self._check_standing(f"clusters[{i}]", record)

    def _check_standing(self, field: str, record: ClusterRecord) -> None:
        """That the bound of a cluster, if it holds, shows where the cluster stands."""
        findings, instance = self.findings, self.instance
        points = {point.nodes: point for point in self.document.points}
        if record.standing == "infeasible":
            for name in ("bound_ns", "step_time_ns"):
                value = getattr(record, name)
                findings.require(value is None, f"{field}.{name}", value, "none")
            return
        if record.bound_ns is None:
            findings.refuse(f"{field}.bound_ns", None, "a bound in ns")
            return
        step_ns = record.step_time_ns
        if step_ns is not None:
            findings.at_least(f"{field}.step_time_ns", step_ns, record.bound_ns)
        point = points.get(record.nodes)
        if point is not None:
            findings.equal(f"{field}.step_time_ns", step_ns, step_time_ns(point))
            proved_ns = (point.plan.lower_bound_s or 0.0) * NANOSECONDS_PER_SECOND * (1 + NOISE)
            holds, text = record.bound_ns <= proved_ns, "the bound of the point's plan"
            text = f"at most {proved_ns}, {text}"
            findings.require(holds, f"{field}.bound_ns", record.bound_ns, text)
        if record.standing == "open":
            return
        by = point if record.standing == "best" else points.get(record.dominated_by or ())
        if by is None:
            findings.refuse(f"{field}.dominated_by", record.dominated_by, "nodes of a point")
            return
        reaching = list[set[Counts]]()
        for terms in worthwhile_terms(instance, record.nodes):
            # limits of plans are not asked: a bound beyond them would be none
            refused = refused_ns(instance, record.nodes, terms) if chooses_terms(instance) else None
            if refused is None or record.bound_ns < refused * (1 - 2 * NOISE):
                reaching.append(self._dominating(record, terms))
        text = f"a bound from which on {by.nodes} dominates"
        named = all(reaching) and any(by.nodes in dominating for dominating in reaching)
        findings.require(named, f"{field}.bound_ns", record.bound_ns, text)

    def _dominating(self, record: ClusterRecord, terms: Terms) -> set[Counts]:
        """Points than which no plan of a cluster on these terms has a smaller figure, by its bound.

        Up to the gap that was asked for, but for figures that do not grow with the step time.
        """
        bound_ns, gap = record.bound_ns or 0, self.document.requested_gap
        ours = self.figures(record.nodes, bound_ns, terms)
        twice = self.figures(record.nodes, 2.0 * bound_ns, terms)
        shares = [1.0 if a == b else 1 - gap for a, b in zip(ours, twice, strict=True)]
        return {
            nodes
            for nodes, theirs in self.listed
            if all(map(ge, ours, np.array(theirs) * shares * (1 - NOISE)))
        }
