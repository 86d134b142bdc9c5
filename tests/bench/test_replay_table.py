"""The public simulator's rules give what its authors print, and the benchmark holds us to it."""

from pathlib import Path

import pytest

from bench.published_rules import Bamboo, Varuna
from bench.replay import INTERVALS, PAPER, Row, completed, public_case, row


def test_varuna_by_the_public_rules_takes_the_printed_times(reference: Path) -> None:
    """BERT-large, failures every 10 minutes: README of tools/simulator, in ms."""
    run = Varuna(public_case(completed(reference), "varuna", "BERT-large", "10m"))
    run.run()
    assert run.time_ms["effective"] == 8_513_245
    assert run.time_ms["checkpoint"] == 632_000
    assert run.time_ms["restart"] == 1_048_100


def test_bamboo_by_the_public_rules_takes_the_printed_times(reference: Path) -> None:
    """The same README counts 19.71 % of the steps as effective: 1,521,824.47 ms."""
    run = Bamboo(public_case(completed(reference), "bamboo", "BERT-large", "10m"))
    run.run()
    assert run.time_ms["effective"] * 0.1971 == pytest.approx(1_521_824.4738)
    assert run.time_ms["effective"] * 0.8029 == pytest.approx(6_199_253.5262)
    assert run.time_ms["rebalance"] == 912_000
    assert run.time_ms["restart"] == 30_000


def test_public_rules_give_the_ratio_of_the_abstract(reference: Path) -> None:
    """Oobleck is up to 13.9 times as fast: its abstract of 2023, on GPT-3 6.7B."""
    content = completed(reference)
    oobleck = content["oobleck_mini"]["GPT-3-6_7b"]["10m"]["paper"]
    varuna = Varuna(public_case(content, "varuna", "GPT-3-6_7b", "10m")).run()
    assert round(oobleck / varuna, 1) == 13.9


@pytest.mark.parametrize("model", ["BERT-large", "GPT-3-6_7b"])
def test_oobleck_row_is_reproduced(model: str, reference: Path) -> None:
    """Within 0.1 % by the public rule, and lower where the step in flight is lost."""
    one = row(completed(reference), "oobleck", model, "10m")
    assert one.replayed == pytest.approx(one.paper, rel=1e-3)
    assert one.lost < one.replayed


@pytest.mark.parametrize("interval", INTERVALS)
def test_bug_varuna_and_bamboo_are_held_against_the_paper(interval: str, reference: Path) -> None:
    """Varuna within 5 % of table 2; GPT-3 every 10 minutes, up to six steps, within six.

    Bamboo by the public rules as printed; we differ from them by failures of idle nodes.
    """
    content = completed(reference)
    for model in PAPER["varuna"]:
        one = row(content, "varuna", model, interval)
        few = interval == "10m" and model in ("GPT-3-2_7b", "GPT-3-6_7b")
        allowed = 6 * one.step_per_s if few else 0.05 * one.paper
        assert one.replayed == pytest.approx(one.paper, abs=allowed)
        assert one.agrees
    for model in PAPER["bamboo"]:
        one = row(content, "bamboo", model, interval)
        assert one.public == pytest.approx(one.paper, abs=0.005)
        assert one.replayed == pytest.approx(one.mended, rel=0.03)
        assert one.paper < one.replayed
        assert one.agrees


def test_figures_far_from_the_paper_are_refused() -> None:
    """5 % of 100 samples/s for Varuna, 9 % for Bamboo; six steps of a run are no fault."""
    for policy, replayed, agrees in (
        ("varuna", 94.9, False),
        ("varuna", 95.1, True),
        ("bamboo", 109.1, False),
    ):
        assert Row("m", "6h", policy, 100.0, 0, 0, replayed, None, 0.5).agrees == agrees
    assert Row("m", "10m", "varuna", 0.7, 0, 0, 0.11, None, 0.1).agrees
    assert not Row("m", "10m", "varuna", 0.7, 0, 0, 0.0, None, 0.1).agrees
