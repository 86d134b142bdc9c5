"""Front files: verify proves them again with code of its own, and refuses what was changed."""

import re
from functools import cache
from itertools import product
from operator import ge
from typing import Any

import pytest

from solver.clusters.front import TimeAndNodes
from solver.front_document import FrontDocument
from solver.report.front_picture import front_picture
from solver.verify import Effort, verify_front
from tests.resealed import Changes, change, resealed
from tests.seeds import one_each
from tests.small_families import SEEDS, found, searched, small_family


@cache
def front(seed: int = SEEDS[1]) -> FrontDocument:
    """The front file of a small family."""
    return found(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_front_is_proved_again(seed: int) -> None:
    """Every point, and where every other cluster stands."""
    checked = verify_front(front(seed))
    assert checked.problems == ()
    assert checked.complete


def test_front_with_a_gap_and_idle_nodes_is_proved_again() -> None:
    """Also where clusters are dominated but for a gap, or must be rented whole."""
    for fewest in ((0, 0), (1, 2)):
        result = searched(small_family(SEEDS[2], fewest), gap=0.05)
        assert verify_front(result).complete


def test_changed_front_is_refused() -> None:
    """The digest tells."""
    changed = front().but(runtime_s=7.0)
    assert any("digest" in problem for problem in verify_front(changed).problems)


def _drop_point(fields: dict[str, Any]) -> None:
    lost = fields["points"].pop()
    for one in fields["clusters"]:
        if one["nodes"] == lost["nodes"]:
            one.update(standing="dominated", dominated_by=fields["points"][0]["nodes"])


def _dominated(**values: object) -> Changes:
    """Other values of the first cluster that another one dominates."""

    def change_first(fields: dict[str, Any]) -> None:
        one = next(one for one in fields["clusters"] if one["standing"] == "dominated")
        for name, value in values.items():
            change(one, name, value)

    return change_first


LOWER_BOUND = _dominated(bound_ns=lambda ns: ns // 2)
DENIED = _dominated(standing="infeasible", bound_ns=None, dominated_by=None)


def _drop_cluster(fields: dict[str, Any]) -> None:
    fields["clusters"] = [one for one in fields["clusters"] if one["standing"] == "best"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (_drop_point, "bound_ns"),
        (_dominated(bound_ns=10**12), "cluster ("),
        (LOWER_BOUND, "bound_ns"),
        (DENIED, "cluster ("),
        (_dominated(step_time_ns=1), "step_time_ns"),
        (_drop_cluster, "clusters"),
        ({"points.0.terms.0.cost_usd_per_step": lambda usd: usd / 2}, "cost_usd_per_step"),
        ({"points.0.nodes_used": [2, 2]}, "nodes_used"),
    ],
)
def test_forged_front_is_refused(changes: Changes, named: str) -> None:
    """A false standing, bound, price or omission is named, though the digest fits."""
    checked = verify_front(resealed(front(), changes))
    assert any(named in problem for problem in checked.problems), checked


@pytest.mark.parametrize("seed", one_each(SEEDS, 2))
def test_bug_subsets_without_some_clusters_are_refused(seed: int) -> None:
    """Any least number of nodes above 0, with the clusters below it gone and all else in order."""
    family = small_family(seed)
    document = searched(family, TimeAndNodes(family), gap=0.02)
    assert verify_front(document).complete
    for fewest in product(*(range(most + 1) for most in family.most)):
        left = [
            number
            for number, one in enumerate(document.clusters)
            if all(map(ge, one.nodes, fewest))
        ]
        kept = {document.clusters[number].nodes for number in left}
        named = (document.clusters[number].dominated_by for number in left)
        if not any(fewest) or not kept or any(by and by not in kept for by in named):
            continue
        found = verify_front(resealed(document, _leaving(fewest)), Effort(prove="nothing"))
        assert any("family.fewest" in problem for problem in found.problems)


def _leaving(fewest: tuple[int, ...]) -> Changes:
    """Clusters and points of these nodes or more."""

    def leave(fields: dict[str, Any]) -> None:
        fields["family"]["fewest"] = fewest
        for name in ("clusters", "points"):
            fields[name] = [one for one in fields[name] if all(map(ge, one["nodes"], fewest))]

    return leave


def test_bound_of_a_point_is_that_of_its_plan() -> None:
    """A point cannot claim more than the log of its plan file proves."""
    document = searched(small_family(SEEDS[1]), gap=0.3)

    def claim_all(fields: dict[str, Any]) -> None:
        for one in fields["clusters"]:
            if one["standing"] == "best":
                one["bound_ns"] = one["step_time_ns"]

    assert verify_front(document).ok
    assert any(point.plan.gap for point in document.points)
    problems = verify_front(resealed(document, claim_all)).problems
    assert any("the bound of the point's plan" in problem for problem in problems)


def test_quick_verification_leaves_searches_at_their_word() -> None:
    """Figures and standings are checked all the same."""
    assert verify_front(front(), Effort(prove="quick")).ok
    assert not verify_front(resealed(front(), LOWER_BOUND), Effort(prove="quick")).ok


def test_bug_picture_of_free_clusters() -> None:
    """Without prices there is one point, at no cost, and a picture all the same."""
    family = small_family(SEEDS[1])
    cluster = family.instance.cluster
    groups = tuple(g.but(price_usd_per_hour=0.0) for g in cluster.groups)
    free = cluster.but(groups=groups)
    document = searched(family.but(instance={"cluster": free}))
    assert len(document.points) == 1
    assert 'class="best"' in front_picture(document)


def test_line_of_the_picture_has_a_corner_at_every_point() -> None:
    """At a throughput it is at the cost of the next faster point, which no mixture undercuts."""
    document = front()
    picture = front_picture(document)
    [line] = re.findall(r'<path class="f" d="M\S+ [^H]+(\S+)"/>', picture)
    corners = set(re.findall(r"H([\d.]+)V([\d.]+)", line))
    places = re.findall(r'<circle cx="(\S+)" cy="(\S+)" r="4" class="best"><', picture)
    assert corners == set(places)
    assert len(corners) == len(document.points)


def test_bug_tooltips_said_better_within_the_gap_and_at_best_of_known_plans() -> None:
    """A cluster that is dominated but for the gap may be a little faster than what dominates it."""
    document = searched(small_family(SEEDS[2]), gap=0.3)
    titles = re.findall(r"<title>(.*)</title>", front_picture(document))
    dominated = [one for one in document.clusters if one.standing == "dominated"]
    behind = [title for title in titles if "; no better than " in title]
    assert len(behind) == len(dominated) > 0
    assert all(title.endswith(" within 30.0 %") for title in behind)
    assert sum(" at best;" in one for one in behind) == sum(not c.step_time_ns for c in dominated)
