"""The timeline of a step agrees with the simulator, as text, as data of the page and as a trace."""

from collections.abc import Sequence
from itertools import product

import pytest

from solver.document import PlanDocument
from solver.plan_figures import costs_of
from solver.report import step as step_module
from solver.report.step import left_out, marks, rows_of, timeline_data
from solver.simulate import Operation, Step, simulate_step
from tests.hand_made import document_of, results, timeline
from tests.recorded import Cases, digest, recorded
from tests.report.shown import PLANS, check_stored, plan
from tests.seeds import few_and_many


def bar(kind: str, start: int, end: int) -> Operation:
    return Operation(kind, 0, 0, 0, start, end)


def test_marks_follow_the_bars() -> None:
    """A quarter forward, a quarter idle, half backward, in eight letters."""
    assert marks([bar("forward", 0, 10), bar("backward", 20, 40)], 40, 8) == "FF..BBBB"


#: A line of 80 columns for each stage, shared by identical replicas; small letters: chunks.
test_timelines_of_small_plans = check_stored(*PLANS)


@pytest.mark.parametrize("seeds", few_and_many(range(12), 12))
def test_rows_hold_every_operation_of_their_replicas(seeds: Sequence[int]) -> None:
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


# The page's data and the trace


@pytest.mark.parametrize("most", [4, 12, 100_000])
def test_what_is_left_out_lies_in_the_middle(most: int, document: PlanDocument, step: Step) -> None:
    """As many bars as asked for remain at most, half of them on each side."""
    rows = rows_of(document, step)
    bars, (begin, end) = [bar for row in rows for bar in row.bars], left_out(rows, most)
    sides = [bar.start_ns < begin for bar in bars], [bar.end_ns > end for bar in bars]
    assert left_out(rows, len(bars)) == (0, 0)
    if most > len(bars):
        assert (begin, end) == (0, 0)
    else:
        assert 0 < begin < end < step.step_time_ns
        assert all(0 < sum(side) <= most // 2 for side in sides)


@recorded("timelines")
def test_timelines_of_long_steps_are_the_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """Their data, from the middle of which bars are left out, so many for each row at least."""
    for name, most, per_row in product(PLANS[:3], (2, 9), (1, 3)):
        document = plan(name)
        done = simulate_step(costs_of(document))
        monkeypatch.setattr(step_module, "_MOST_BARS", most)
        monkeypatch.setattr(step_module, "_LEAST_PER_ROW", per_row)
        data = timeline_data(document, rows_of(document, done), done)
        yield f"{name} {most} {per_row}", [data["hidden"], digest(data)]


test_data_of_pages_and_traces_are_as_stored = check_stored("timeline", "trace")
