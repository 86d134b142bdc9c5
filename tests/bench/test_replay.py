"""The public simulator's rules give what its authors print, and the benchmark holds us to it."""

import json
from pathlib import Path

import pytest

from bench.published_rules import Bamboo, Varuna
from bench.replay import (
    INTERVALS,
    PAPER,
    completed,
    public_case,
    published_policy,
    published_trace,
    row,
)
from solver.replay.player import replay
from tests.seeds import one_each


def test_public_rules_take_the_printed_times(reference: Path) -> None:
    """BERT-large, failures every 10 minutes: README of tools/simulator, in ms.

    Of Bamboo it counts 19.71 % of the steps as effective. By its abstract of 2023 Oobleck is up to
    13.9 times as fast as Varuna, on GPT-3 6.7B.
    """
    content = completed(reference)
    varuna = Varuna(public_case(content, "varuna", "BERT-large", "10m"))
    varuna.run()
    times = {"effective": 8_513_245, "checkpoint": 632_000, "restart": 1_048_100}
    assert {name: varuna.time_ms[name] for name in times} == times
    bamboo = Bamboo(public_case(content, "bamboo", "BERT-large", "10m"))
    bamboo.run()
    assert bamboo.time_ms["effective"] * 0.1971 == pytest.approx(1_521_824.4738)
    assert (bamboo.time_ms["rebalance"], bamboo.time_ms["restart"]) == (912_000, 30_000)
    oobleck = content["oobleck_mini"]["GPT-3-6_7b"]["10m"]["paper"]
    slow = Varuna(public_case(content, "varuna", "GPT-3-6_7b", "10m")).run()
    assert round(oobleck / slow, 1) == 13.9


@pytest.mark.parametrize("interval", INTERVALS)
def test_bug_varuna_and_bamboo_are_held_against_the_paper(interval: str, reference: Path) -> None:
    """Varuna within 5 % of table 2; GPT-3 every 10 minutes, up to six steps, within six.

    Bamboo by the public rules as printed; we differ from them by failures of idle nodes.
    """
    content = completed(reference)
    for model in PAPER["varuna"]:
        figures = row(content, "varuna", model, interval)
        few = interval == "10m" and model in ("GPT-3-2_7b", "GPT-3-6_7b")
        allowed = 6 * figures.step_per_s if few else 0.05 * figures.paper
        assert figures.replayed == pytest.approx(figures.paper, abs=allowed)
        assert figures.agrees
    for model in PAPER["bamboo"]:
        figures = row(content, "bamboo", model, interval)
        assert figures.public == pytest.approx(figures.paper, abs=0.005)
        assert figures.replayed == pytest.approx(figures.mended, rel=0.03)
        assert figures.paper < figures.replayed
        assert figures.agrees


#: Oobleck (SOSP 2023), Table 2, its own column: samples/s with a failure every 6 h, 1 h, 10 min.
TABLE_2 = {
    "BERT-large": (287.1, 286.28, 282.11),
    "GPT-2-ours": (85.59, 85.42, 84.8),
    "GPT-3-medium": (29.3, 29.21, 28.7),
    "GPT-3-2_7b": (7.29, 7.23, 6.89),
    "GPT-3-6_7b": (4.33, 4.22, 3.55),
}


@pytest.mark.parametrize("model", one_each(list(TABLE_2), 5))
def test_table_2_of_oobleck_is_reproduced(model: str, reference: Path) -> None:
    """Within 0.1 % of the public simulator's output, and within the paper's rounding to 0.01."""
    content = json.loads((reference / "oobleck" / "table2_inputs.json").read_text())
    stored = content["oobleck_mini"][model]
    for name, printed in zip(("6h", "1h", "10m"), TABLE_2[model], strict=True):
        trace = published_trace(content, name)
        throughput, strict = (
            replay(trace, published_policy(content, "oobleck", model, rule))
            for rule in ("background", "lost")
        )
        per_s = throughput.samples_per_s_between_steps
        assert per_s == pytest.approx(stored[name]["artifact"], rel=1e-4)
        assert per_s == pytest.approx(printed, abs=0.0101)
        lost = strict.samples_per_s_between_steps
        assert lost == pytest.approx(stored[name]["mini_strict_loss"], rel=1e-4)
