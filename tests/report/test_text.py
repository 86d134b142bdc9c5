"""Words of a plan say what the plan file says, and those without a plan what is in the way."""

import pytest

from solver.document import ErrorDocument
from solver.report import text as report
from solver.report.text import second_best_lines, solution_text
from solver.result import SecondBest
from tests.report.shown import PLANS, check_stored, drawn, plan

test_words_are_as_stored = check_stored(*PLANS, "planless")


@pytest.mark.parametrize(("most", "stages"), [(4, "0011"), (3, "0.1")])
def test_of_many_stages_the_first_and_the_last_are_shown(
    most: int, stages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "_MOST_ROWS", most)
    rows = drawn(*solution_text(plan("interleaved"))).partition("──\n")[2].partition("\n\n")[0]
    assert "".join(row[0] for row in rows.splitlines()) == stages


@pytest.mark.parametrize(
    ("behind", "at_least", "text"),
    [
        (0.44, 0.0, ": 2.000 s, 44.0 % slower, within the error bar of 44 %; `shortlist` picks"),
        (0.45, 0.0, "none was seen within the error bar of 44 %, but none is ruled out there"),
        (None, 0.44, "none was seen within the error bar of 44 %, but none is ruled out there"),
        (None, 0.45, "none within the error bar of 44 %: any other configuration is at least 45.0"),
    ],
)
def test_second_best_is_within_the_error_bar_or_not(
    behind: float | None, at_least: float, text: str
) -> None:
    """What was seen, and what bounds rule out, just inside and just outside a bar of 44 %."""
    document = plan("zones")
    error = ErrorDocument(bar=0.44, evidence=())
    config = None if behind is None else document.config
    second = SecondBest(config=config, step_time_s=2.0, behind=behind, at_least=at_least)
    [(label, told)] = second_best_lines(document.but(expected_error=error, second_best=second))
    assert label == "second best"
    assert text in told
    assert not [*second_best_lines(document.but(expected_error=None, second_best=second))]
