"""Front files: verify proves them again with code of its own, and refuses what was changed."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from formulations.instance.instance import Family
from solver.clusters.front import Measure
from solver.front_document import FrontDocument
from solver.report.front_picture import front_picture
from solver.verify import Effort, verify_front
from tests.recorded import as_recorded
from tests.small_families import SEEDS, priced, searched, small_family
from tests.small_instances import spot_instance
from tests.verify.forgeries import judged, resealed


@cache
def front(
    seed: int = SEEDS[1], gap: float = 0.0, fewest: tuple[int, int] = (0, 0)
) -> FrontDocument:
    return searched(small_family(seed, fewest), gap=gap)


FRONTS: dict[str, Callable[[], FrontDocument]] = {
    "subsets": lambda: searched(small_family(9), Measure(small_family(9), "subsets"), gap=0.02),
    "on spot": lambda: searched(Family(instance=spot_instance(6), fewest=(0, 0))),
}
FIELDS = (
    "aim requested_gap clusters points.nodes points.terms family.fewest "
    "family.instance.limits.max points.plan.lower_bound_s points.plan.step_time_s"
)


@pytest.mark.parametrize(
    ("name", "fields"), [("subsets", FIELDS), ("on spot", "points.terms points.nodes aim")]
)
def test_what_is_said_of_forged_fronts(name: str, fields: str) -> None:
    """A false standing, bound, price or omission is named, though the digest fits."""
    verdicts = judged(name, FRONTS[name](), verify_front, fields, number=1)
    as_recorded("verify_front_file", verdicts)


def test_quick_verification_leaves_searches_at_their_word() -> None:
    quick = Effort(prove="quick")
    assert not verify_front(front(), quick).problems
    assert verify_front(resealed(front(), {"clusters": []}), quick).problems
    assert verify_front(front(SEEDS[2], 0.05, (1, 2))).complete  # rented whole
    assert any("digest" in line for line in verify_front(front().but(runtime_s=7.0)).problems)


def test_bug_subsets_without_some_clusters_are_refused() -> None:
    """A least number of nodes above 0, with the clusters below it gone and all else in order."""

    def leave(fields: dict[str, Any]) -> None:
        fields["family"]["fewest"] = (0, 1)
        for name in ("clusters", "points"):
            fields[name] = [one for one in fields[name] if one["nodes"][1]]

    problems = verify_front(resealed(FRONTS["subsets"](), leave), Effort(prove="nothing")).problems
    assert any("family.fewest" in problem for problem in problems)


def test_bug_picture_of_free_clusters() -> None:
    """Without prices there is one point, at no cost, and a picture all the same."""
    document = searched(priced(small_family(SEEDS[1]), 0.0))
    assert len(document.points) == 1
    assert "1 on the front" in front_picture(document)
