"""Which plans to measure: greedily the least expected minimum, and a job for each."""

import csv
from functools import cache

import numpy as np
import pytest

from formulations.instance.load import load_instance
from solver.document import PlanDocument
from solver.evaluate.shortlist import MEASURED, drawn_times, jobs, picked, shortlist
from solver.export.job import Job
from solver.options import SolveOptions
from solver.plan_figures import plan_of
from solver.result import Shortlist
from tests.conftest import ROOT
from tests.export.read_back import check_files
from tests.recorded import as_recorded

HOMO_SMALL = ROOT / "instances" / "homo_small.yaml"


@cache
def _listed() -> Shortlist:
    return shortlist(load_instance(HOMO_SMALL), 4, SolveOptions(gap=0.001))[1]


def test_each_pick_lowers_the_expected_minimum_most() -> None:
    """Against the means of all pairs over the same draws."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        factors = 0.1 * rng.standard_normal((6, 3))
        means, joint = 0.1 * rng.random(6), factors @ factors.T + 0.001 * np.eye(6)
        times = drawn_times(means, joint)
        assert np.cov(np.log(times).T) == pytest.approx(joint, abs=0.004)
        (first, none), (second, gain) = picked(means, joint, 2)
        assert (first, none) == (int(means.argmin()), 0)
        pairs = [np.minimum(times[:, first], times[:, j]).mean() for j in range(6)]
        assert pairs[second] == min(pairs)
        assert gain == pytest.approx(1 - min(pairs) / times[:, first].mean())


def test_shortlists_are_recorded() -> None:
    plans = _listed()
    assert plans.complete
    assert 0 < sum(listed.chance for listed in plans.listed) <= 1
    assert plans.listed[0].behind == 0
    figures: dict[str, object] = {
        f"{n} of {plans.candidates}": [
            listed.plan.config.model_dump_json(exclude_defaults=True),
            listed.step_time_ns,
            round(listed.behind, 6),
            round(listed.chance, 2),
        ]
        for n, listed in enumerate(plans.listed)
    }
    as_recorded("shortlist", figures | {"margin": plans.margin})


def test_every_plan_gets_a_job_that_reads_back() -> None:
    plans, instance = _listed(), load_instance(HOMO_SMALL)
    texts, refused = jobs(instance, plans, "megatron")
    assert not refused
    for n, listed in enumerate(plans.listed, 1):
        document = PlanDocument.model_validate_json(texts[f"plan-{n}.json"])
        assert plan_of(document) == listed.plan
        files = {file.removeprefix(f"{n}/"): text for file, text in texts.items()}
        check_files("megatron", Job(document.instance, listed.plan), files)
    rows = list(csv.DictReader(texts[MEASURED].splitlines()))
    assert [row["plan"] for row in rows] == [f"plan-{n}.json" for n in range(1, 5)]


def test_what_a_target_cannot_express_has_no_job() -> None:
    """Pipelines are not Accelerate's; the plan file stays."""
    instance = load_instance(HOMO_SMALL).but(search={"pipeline_parallel": (4,)})
    plans = shortlist(instance, 1, SolveOptions(gap=0.001))[1]
    texts, refused = jobs(instance, plans, "accelerate")
    assert texts.keys() == {"plan-1.json", MEASURED}
    assert refused[0].startswith("plan-1.json: ")
