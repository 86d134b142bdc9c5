"""What limits a step, and its timeline, agree with the simulator."""

import re
from collections.abc import Sequence

import pytest

from solver.document import PlanDocument
from solver.report.critical import busy_share, improvements, shares
from solver.report.document import costs_of
from solver.report.step import marks, rows_of, text_timeline
from solver.simulate import Operation, Step, simulate_step
from tests.hand_made import document_of, results, timeline
from tests.seeds import few_and_many

# What limits a step


@pytest.mark.parametrize("seeds", few_and_many(range(25), 4))
def test_shares_of_the_critical_path_are_the_step_time(seeds: Sequence[int]) -> None:
    """Nothing of the step is left unexplained, for plans of many forms."""
    for result in results(seeds):
        step = simulate_step(costs_of(document_of(result)))
        assert sum(share.time_ns for share in shares(step.critical_path)) == step.step_time_ns


def test_improvement_of_a_lone_stage_is_its_share() -> None:
    """On one stage without sync, 10 % off the compute saves 10 % of its share of the step."""
    result = next(
        result
        for result in results(range(50))
        if result.plan is not None and result.plan.shape.slots == 1
    )
    document = document_of(result)
    costs = costs_of(document)
    step = simulate_step(costs)
    compute = next(share for share in shares(step.critical_path) if share.kind == "compute")
    [stage] = document.replicas[0].stages
    saved = dict(improvements(document, step))[f"compute on {stage.gpu_type}"]
    assert saved == pytest.approx(0.1 * compute.time_ns / step.step_time_ns, rel=1e-6)


@pytest.mark.parametrize("seeds", few_and_many(range(12), 3))
def test_improvements_save_no_more_than_asked(seeds: Sequence[int]) -> None:
    """10 % off one kind of work saves some, and at most 10 %, of any step; largest first."""
    for result in results(seeds):
        document = document_of(result)
        costs = costs_of(document)
        saved = [part for _, part in improvements(document, simulate_step(costs))]
        assert saved == sorted(saved, reverse=True)
        assert all(0 < part <= 0.1 + 1e-6 for part in saved)


def test_busy_share_counts_all_gpus(document: PlanDocument) -> None:
    """Compute of all groups over groups times step."""
    busy = sum(
        replica.micro_batches * (stage.forward_s + stage.backward_s)
        for replica in document.replicas
        for stage in replica.stages
    )
    assert document.step_time_s is not None
    assert busy_share(document) == pytest.approx(busy / (4 * document.step_time_s))


# Timeline


def bar(kind: str, start: int, end: int) -> Operation:
    """An operation of stage 0, replica 0."""
    return Operation(kind, 0, 0, 0, start, end)


def test_marks_follow_the_bars() -> None:
    """A quarter forward, a quarter idle, half backward, in eight letters."""
    assert marks([bar("forward", 0, 10), bar("backward", 20, 40)], 40, 8) == "FF..BBBB"


def test_marks_keep_shares_where_bars_are_short() -> None:
    """A hundred pairs of F and B, B twice as long, in ten letters: a third of them F."""
    bars = [
        bar(kind, 3 * i + start, 3 * i + end)
        for i in range(100)
        for kind, start, end in (("forward", 0, 1), ("backward", 1, 3))
    ]
    assert marks(bars, 300, 10).count("F") in (3, 4)
    assert "." not in marks(bars, 300, 10)


def test_text_timeline_has_equal_lines(document: PlanDocument, step: Step) -> None:
    """Each stage has one line of 80 columns, shared by its identical replicas."""
    text = text_timeline(document, step)
    lines = re.findall(r"^stage \d ([A-Z.]+) ", text, re.MULTILINE)
    assert [len(line) for line in lines] == [80 - len("stage 0  fast")] * 2
    assert "replicas 0-1" in text
    assert lines[0].startswith("F")


@pytest.mark.parametrize("seeds", few_and_many(range(12), 3))
def test_rows_hold_every_operation_of_their_replicas(seeds: Sequence[int]) -> None:
    """Replicas of equal signature have equal bars, and no operation is lost."""
    for result in results(seeds):
        document = document_of(result)
        step = simulate_step(costs_of(document))
        drawn = 0
        for row in rows_of(document, step):
            assert [b.start_ns for b in row.bars] == sorted(b.start_ns for b in row.bars)
            own = [b for b in row.bars if b.replica is not None]
            for replica in row.replicas:
                same = [b for b in timeline(step) if (b.stage, b.replica) == (row.stage, replica)]
                spans = [(b.kind, b.micro_batch, b.start_ns, b.end_ns) for b in own]
                assert spans == [(b.kind, b.micro_batch, b.start_ns, b.end_ns) for b in same]
                drawn += len(same)
        assert drawn == sum(b.replica is not None for b in timeline(step))
