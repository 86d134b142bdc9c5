"""Reports of plans with several chunks per GPU, or with weight gradients put off."""

import re
from dataclasses import replace

import pytest

from formulations.costs.plan_costs import PlanCosts
from solver.document import PlanDocument
from solver.report.critical import busy_share, improvements
from solver.report.document import costs_of
from solver.report.step import rows_of, text_timeline
from solver.report.text import result_text
from solver.simulate import Step, simulate_step, step_time_ns
from tests.certified_cases import CASES
from tests.hand_made import timeline
from tests.solver.test_report import printed


def test_chunks_are_lines_of_their_stage() -> None:
    """Stage by stage, chunk by chunk; place and memory of the GPUs stand with the first."""
    document = CASES["interleaved"]()
    text = printed(result_text(document, *_simulated(document)))
    assert "pipeline 2, 2 chunks per GPU, on 4 GPUs" in text
    assert "interleaved 1F1B schedule" in text
    assert re.search(r"forward ms +backward ms +used GiB +free GiB$", text, re.MULTILINE)
    pattern = r"^(\d) +(\d) +(\S+) +0 +(\S*: 0-1)?[a-z ]* [\d.]+ +[\d.]+(  [\d. ]+\d)? *$"
    rows = re.findall(pattern, text, re.MULTILINE)
    assert [row[:4] for row in rows] == [
        ("0", "0", "E", "slow-0: 0-1"),
        ("0", "1", "1", ""),
        ("1", "0", "0", "fast-0: 0-1"),
        ("1", "1", "H", ""),
    ]
    assert [bool(row[4]) for row in rows] == [True, False, True, False]


def test_weight_gradients_have_a_column() -> None:
    """What is put off of a backward pass stands beside it, and in the plan file."""
    document = CASES["split_backward"]()
    text = printed(result_text(document, *_simulated(document)))
    assert re.search(r"weights ms +used GiB", text)
    stages = document.replicas[0].stages
    assert all(0 < stage.weight_gradient_s < stage.backward_s for stage in stages)
    plain = CASES["pipelined"]().replicas[0].stages
    assert {stage.weight_gradient_s for stage in plain} == {0.0}


def _simulated(document: PlanDocument) -> tuple[PlanCosts, Step]:
    costs = costs_of(document)
    return costs, simulate_step(costs)


@pytest.mark.parametrize("case", ["interleaved", "split_backward"])
def test_every_device_has_one_row(case: str) -> None:
    """A row holds the operations of all chunks of its GPUs; two stages, one replica."""
    document = CASES[case]()
    step = simulate_step(costs_of(document))
    rows = rows_of(document, step)
    assert [row.stage for row in rows] == [0, 1]
    assert sum(len(row.bars) for row in rows) == len(timeline(step))
    assert len(re.findall("stage [01]", text_timeline(document, step))) == 2


def test_chunks_and_weight_gradients_are_told_apart() -> None:
    """Small letters and other colours for later chunks; W and a legend for weight gradients."""
    drawn = {}
    for case in ("interleaved", "split_backward"):
        document = CASES[case]()
        step = simulate_step(costs_of(document))
        drawn[case] = text_timeline(document, step)
    text = drawn["interleaved"]
    assert re.search(r"^stage 0 [FBfb.SEOG]*f[FBfb.SEOG]* slow$", text, re.MULTILINE)
    assert "small letters: later chunks" in text
    text = drawn["split_backward"]
    assert "B input gradients, W weight gradients" in text


def test_bug_faster_gpus_put_off_shorter_weight_gradients() -> None:
    """10 % less compute shortens both parts of a backward pass, so saves 10 % at most."""
    document = CASES["split_backward"]()
    costs = costs_of(document)
    saved = dict(improvements(document, costs, simulate_step(costs)))
    assert all(0 < part <= 0.1 + 1e-6 for part in saved.values())
    both = replace(
        costs,
        forward_ns=costs.forward_ns * 9 // 10,
        backward_ns=costs.backward_ns * 9 // 10,
        weight_ns=costs.weight_ns * 9 // 10,
    )
    whole = 1 - step_time_ns(both) / step_time_ns(costs)
    assert max(saved.values()) <= whole + 1e-9


@pytest.mark.parametrize("case", ["interleaved", "split_backward"])
def test_busy_share_is_that_of_the_gpus(case: str) -> None:
    """Bars of compute over two GPUs' steps, whatever the number of chunks."""
    document = CASES[case]()
    step = simulate_step(costs_of(document))
    busy_ns = sum(bar.end_ns - bar.start_ns for bar in step.operations(0))
    assert busy_share(document) == pytest.approx(busy_ns / (2 * step.step_time_ns), rel=1e-6)
