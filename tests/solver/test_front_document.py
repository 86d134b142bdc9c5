"""The file of a front: what terms come to, and which clusters are open."""

import pytest

from formulations.costs.renting import Terms
from formulations.instance import Objective
from solver.front_document import TermsDocument
from tests.report.shown import front
from tests.small_instances import random_instance


def test_terms_are_of_steps_that_are_kept() -> None:
    """At 2 USD/h and a slowdown of 1.25 a step of 8 s takes 10 s and costs 1/180 USD."""
    instance = random_instance(3).but(objective=Objective(minimize="step_time", steps=100))
    terms = Terms(on_spot=("a",), usd_per_hour=2.0, preemptions_per_hour=1.0, slowdown=1.25)
    document = TermsDocument.of(instance, terms, 8.0)
    assert (document.on_spot, document.price_usd_per_hour) == (("a",), 2.0)
    assert document.availability == pytest.approx(0.8)
    assert document.sequences_per_s == pytest.approx(instance.workload.global_batch / 10)
    assert document.cost_usd_per_step == pytest.approx(1 / 180)
    assert document.training_cost_usd == pytest.approx(100 / 180)
    assert TermsDocument.of(random_instance(3), terms, 8.0).training_cost_usd is None


def test_open_clusters_are_counted() -> None:
    assert front().num_open == 0
    opened = tuple(cluster.but(standing="open") for cluster in front().clusters)
    assert front().but(clusters=opened).num_open == len(opened)
