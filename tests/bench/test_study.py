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
from bench.study import published
from formulations.costs.tables import build_tables
from solver.heuristics.balance import SplitSpace, order_balance
from tests.chain_instances import all_splits
from tests.seeds import one_each
from tests.small_instances import plain_config, random_instance


@pytest.mark.parametrize("seed", one_each(range(12), 6))
def test_cases_agree_with_brute_force(seed: int) -> None:
    """The optimum and the least largest stage over all splits that fit."""
    instance = random_instance(seed)
    for case in cases("tiny", instance, limit_s=60):
        tables = build_tables(instance, case.config)
        config_study = ConfigStudy(tables)
        stages = order_balance(SplitSpace(tables), case.order, config_study.shares)
        splits = [
            split
            for split in all_splits(tables.num_layers, tables.config.pp)
            if all(stages.allowed(k, *ends) for k, ends in enumerate(pairwise(split)))
        ]
        steps_ns = [config_study.step_ns(case.order, split) for split in splits]
        assert case.optimum_ns == case.bound_ns == min(steps_ns)
        assert case.exact_stage_ns == min(max(stages.times_ns(split)) for split in splits)
        assert case.exact_stage_ns <= case.minmax_stage_ns
        assert {case.minmax_ns, case.exact_ns} <= {*steps_ns}


@pytest.mark.slow
def test_published_plans_are_held_against_their_own_optimum(reference: Path) -> None:
    """21 plans, none below the optimum of its configuration and order."""
    plans = list(published(reference, limit_s=60))
    assert len(plans) == 21
    assert all(plan.bound_ns <= plan.optimum_ns <= plan.step_ns for plan in plans)


def test_run_stores_record_cases_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two cases of a stored instance name, worked out elsewhere: 5 % and 0 % from the optimum."""
    config = plain_config((1, 1), pp=2)
    pair = [Case("tiny", config, (1, 0), 100, 100, *ns, 12, 10) for ns in ((105, 100), (100, 102))]
    monkeypatch.setattr(study, "cases", lambda *_: pair)
    out = tmp_path / "study.jsonl"
    monkeypatch.setattr(sys, "argv", ["study", "hetero_small", "--out", str(out)])
    study.main()
    [line] = out.read_text(encoding="utf-8").splitlines()
    figures = json.loads(line)
    assert figures["summary"]["min-max as intended"]["optimal"] == 0.5
    assert figures["summary"]["exact min-max"]["worst"] == pytest.approx(0.02)
    assert figures["largest_stage"]["mean"] == pytest.approx(0.2)
    with out.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        assert [(row["minmax_ns"], row["order"]) for row in csv.DictReader(file)] == [
            ("105", "ba"),
            ("100", "ba"),
        ]
    ElementTree.fromstring(out.with_suffix(".svg").read_text(encoding="utf-8"))
    assert "worst of min-max as intended: 5.00 % on tiny, order ba" in capsys.readouterr().out
