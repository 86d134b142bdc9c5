"""How far simulated steps are from measured ones, and the regret of rules."""

from pathlib import Path

import pytest

from bench.accuracy import predicted, summaries
from bench.accuracy_choices import choices, figures, regret
from bench.evidence import read
from tests.bench.bounds import bounds


@pytest.mark.slow
def test_errors_stay_within_bounds(reference: Path) -> None:
    """Of every kind of evidence: rows with a plan, mean of the error, and the largest."""
    rows = [predicted(case) for case in read(reference).cases]
    lines = {f"{row['source']}, {row['kind']}": row for row in summaries(rows, "source", "kind")}
    assert lines.keys() == bounds("accuracy").keys()
    for key, (number, mean_bound, bound) in bounds("accuracy").items():
        line = lines[key]
        assert line["rows"] == number
        assert line["mean"] <= mean_bound, key
        assert abs(line["worst"]) <= bound, key


@pytest.mark.slow
def test_measured_steps_bring_error_and_regret_down(reference: Path) -> None:
    """One per kernel shape below 5 % and 1 %, all below 2.6 % and 0.1 %; other rules are worse."""
    steps = {c: own for c, own in choices(reference).items() if (c.h, c.blocks) == (1024, 24)}
    rules = {row["rule"]: row for row in figures(steps, draws=1)}
    one, every = rules["one step per kernel shape"], rules["all steps"]
    assert one["error"] < 0.05
    assert one["regret"] < 0.01
    assert every["error"] < 0.026
    assert every["regret"] < 0.001
    for rule in ("analytic model", "FASOP's scaling", "Megatron-LM's takeaways"):
        assert rules[rule]["regret"] > one["regret"]


def test_regret_is_that_of_the_pick(reference: Path) -> None:
    """A rule that deems the longest step best is as much slower as that; the truth is not."""
    choice, own = max(choices(reference).items(), key=lambda item: len(item[1]))
    times = [step.measured_s for step in own]
    assert regret({choice: list(own)}, lambda step: step.measured_s) == 0
    assert regret({choice: list(own)}, lambda s: -s.measured_s) == max(times) / min(times) - 1
