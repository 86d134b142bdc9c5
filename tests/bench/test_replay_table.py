"""The public simulator's rules give what its authors print, and the benchmark holds us to it."""

from pathlib import Path

import pytest

from bench.published_rules import Bamboo, Varuna
from bench.replay import TOLERANCE, completed, public_case, row


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
    """Within the tolerance by the public rule, and lower where the step in flight is lost."""
    one = row(completed(reference), "oobleck", model, "10m")
    assert one.replayed == pytest.approx(one.published, rel=TOLERANCE)
    assert one.lost < one.replayed


@pytest.mark.parametrize("interval", ["6h", "1h", "10m"])
@pytest.mark.parametrize("model", ["BERT-large", "GPT-2-ours"])
def test_bamboo_differs_by_idle_failures(model: str, interval: str, reference: Path) -> None:
    """Within 3 % of the public rules once the failure of an idle node slows nobody down."""
    one = row(completed(reference), "bamboo", model, interval)
    assert one.replayed == pytest.approx(one.mended, rel=0.03)
    assert one.published < one.replayed
