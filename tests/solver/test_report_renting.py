"""What reports say of terms and preemptions."""

import pytest

from formulations.costs.renting import terms_of
from solver.document import PlanDocument
from solver.report.assumptions import assumptions, renting_lines
from solver.report.compared import difference
from solver.report.document import costs_of
from solver.report.html.page import html_page
from solver.report.naming import degrees_of
from solver.simulate import simulate_step
from tests.certified_cases import CASES
from tests.command_line import printed


def on_spot() -> PlanDocument:
    """6 USD/h of a node on demand and one on spot, 12 + 3 = 15 USD/h, 0.5 preemptions per hour."""
    return CASES["on_spot"]()


def text() -> str:
    """All lines."""
    return "\n".join(f"{label}: {line}" for label, line in renting_lines(on_spot()))


@pytest.mark.parametrize(
    "words",
    [
        "rented: 1 node of fast on demand, 12.00 USD per node-hour",
        "1 node of slow on spot, 3.000 USD per node-hour, 0.5 preemptions per node-hour (assumed",
        "checkpoints: 15.80 s after ",
        "assumed: preemptions: 0.5 per hour, one node each at its own time",
        "121.0 s until another node is in its place; all nodes are paid for all the time",
    ],
)
def test_terms_and_assumptions_are_named(words: str) -> None:
    """Prices, rates with their source, checkpoints, what a preemption costs."""
    assert words in text()


def test_useful_throughput_and_money() -> None:
    """What is left of the throughput, and rent over it: 15 USD/h / 3600 s."""
    document = on_spot()
    terms = terms_of(document.instance, (1, 1))
    assert document.renting is not None
    assert document.throughput_sequences_per_s is not None
    useful = document.throughput_sequences_per_s / terms.slowdown
    assert document.renting.useful_sequences_per_s == pytest.approx(useful)
    cost = 15 / 3600 / useful
    assert document.renting.cost_usd_per_useful_sequence == pytest.approx(cost)
    assert f"{useful:.4g} sequences/s, as " in text()
    assert " per sequence" in text()


def test_other_objectives_say_nothing() -> None:
    """A plan of least training cost is rented on demand, at the price that it states."""
    assert renting_lines(CASES["cheapest"]()) == []


def test_spot_prices_that_the_objective_leaves_out_are_named() -> None:
    """So that nobody takes a plan of least step time for one that looked at them."""
    document = on_spot()
    assert document.shape is not None
    other = document.instance.but(objective={"minimize": "cost_per_step"})
    unused = [
        line
        for label, line in assumptions(other, document.shape, degrees_of(document))
        if label == "unused"
    ]
    assert any(line.startswith("spot prices of fast, slow: ") for line in unused)
    own = assumptions(document.instance, document.shape, degrees_of(document))
    assert not any("spot prices" in line for _, line in own)


def test_page_and_difference_have_the_figures() -> None:
    """The HTML page has the lines, a difference the money per useful sequence."""
    document = on_spot()
    assert "0.5 preemptions per node-hour" in html_page(document, simulate_step(costs_of(document)))
    text = printed(*difference(document, document, ("a", "b")))
    assert "money per useful sequence" in text
