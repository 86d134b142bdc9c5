"""The heuristic gap study: its optima against brute force, its figures, its files."""

import csv
import json
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import study
from bench.cases import Case, ConfigStudy, cases
from bench.curves import steps
from bench.minmax import exact_minmax
from bench.study import PublishedCase, distances, published, quantile, summary
from formulations.costs.tables import CostTables, build_tables
from solver.heuristics.balance import Balance, Split, SplitSpace, order_balance
from tests.chain_instances import FAST, SLOW, all_splits, chain_instance, chain_tables
from tests.seeds import one_each
from tests.small_instances import plain_config, random_instance

SHAPE = plain_config((1, 1), pp=2)


def case_of(minmax_ns: int, exact_ns: int) -> Case:
    """A case whose optimum is 100 ns."""
    return Case("tiny", SHAPE, (1, 0), 100, 100, minmax_ns, exact_ns, 12, 10)


def fitting_splits(tables: CostTables, stages: Balance) -> list[Split]:
    """Every split whose stages all have enough blocks and memory."""
    return [
        split
        for split in all_splits(tables.num_layers, tables.config.pp)
        if all(stages.allowed(k, *ends) for k, ends in enumerate(pairwise(split)))
    ]


def test_exact_minmax_of_a_chain(round_times: None) -> None:
    """Blocks of 4, 2, 2, 4 GFLOP; the second node is twice as fast as the first.

    Slow: 3 ms a GFLOP, fast 1.5. [4 | 2 2 4]: 12 and 12 ms. [4 2 | 2 4]: 18. The embedding and the
    head take no time.
    """
    study_of = ConfigStudy(chain_tables(chain_instance([4, 2, 2, 4], [SLOW, FAST])))
    found = exact_minmax(study_of.problem((0, 1)))
    assert found == ((0, 2, 6), 12_000_000)


@pytest.mark.parametrize("seed", one_each(range(12), 6))
def test_cases_agree_with_brute_force(seed: int) -> None:
    """The optimum and the least largest stage over all splits that fit."""
    instance = random_instance(seed)
    for case in cases("tiny", instance, limit_s=60):
        tables = build_tables(instance, case.config)
        config_study = ConfigStudy(tables)
        stages = order_balance(SplitSpace(tables), case.order, config_study.shares)
        splits = fitting_splits(tables, stages)
        steps_ns = [config_study.step_ns(case.order, split) for split in splits]
        assert case.optimum_ns == case.bound_ns == min(steps_ns)
        assert case.exact_stage_ns == min(max(stages.times_ns(split)) for split in splits)
        assert case.exact_stage_ns <= case.minmax_stage_ns
        assert case.minmax_ns in steps_ns
        assert case.exact_ns in steps_ns


@pytest.mark.slow
def test_published_plans_are_held_against_their_own_optimum(reference: Path) -> None:
    """21 plans, none below the optimum of its configuration and order."""
    found = list(published(reference, limit_s=60))
    assert len(found) == 21
    assert all(one.bound_ns <= one.optimum_ns <= one.step_ns for one in found)


def test_distances_are_relative_to_the_optimum() -> None:
    """105 and 100 against 100; 10 against 8 of a published plan."""
    found = distances([case_of(105, 100), case_of(100, 100)], [PublishedCase("x", 10, 8, 8)])
    assert found == {
        "min-max as intended": [0.0, pytest.approx(0.05)],
        "exact min-max": [0.0, 0.0],
        "FASOP's published plans": [0.25],
    }


def test_summary_of_four_distances() -> None:
    """0, 0, 0.1, 0.3: half optimal, mean 0.1; two of four are at most 0, three at most 0.1."""
    figures = summary([0.0, 0.0, 0.1, 0.3])
    assert figures["optimal"] == 0.5
    assert figures["mean"] == pytest.approx(0.1)
    assert figures["quantile_0.5"] == 0.0
    assert figures["quantile_0.75"] == 0.1
    assert figures["worst"] == 0.3
    # The least that the share does not exceed: of 10, 0.9 is the ninth; curves reach one
    values = [float(i) for i in range(1, 11)]
    assert [quantile(values, share) for share in (0.5, 0.9, 0.95, 0.99)] == [5, 9, 10, 10]
    assert steps([0.3, 0.0, 0.0, 0.1]) == [(0.0, 0.5), (0.1, 0.75), (0.3, 1.0)]


def test_run_stores_record_cases_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two cases of a stored instance name, worked out elsewhere."""
    monkeypatch.setattr(study, "cases", lambda name, *_: [case_of(105, 100), case_of(100, 102)])
    out = tmp_path / "study.jsonl"
    monkeypatch.setattr(sys, "argv", ["study", "hetero_small", "--out", str(out)])
    study.main()
    (one,) = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert one["summary"]["min-max as intended"]["optimal"] == 0.5
    assert one["largest_stage"]["mean"] == pytest.approx(0.2)
    assert {"hardware", "versions", "options", "not_proved"} <= one.keys()
    with out.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["minmax_ns"] for row in rows] == ["105", "100"]
    assert rows[0]["order"] == "ba"
    ElementTree.fromstring(out.with_suffix(".svg").read_text(encoding="utf-8"))
    assert "worst of min-max as intended: 5.00 % on tiny, order ba" in capsys.readouterr().out
