"""Which published findings come out, part by part."""

from pathlib import Path

import pytest

from bench import claims_cheng, claims_megatron, findings
from bench.claims import FOLDER, Study, Values, outcome
from bench.records import RESULTS, stored
from formulations.instance.load import load_instance
from solver.options import SolveOptions
from solver.search.driver import solve
from tests.conftest import present

#: Parts of each study that do not come out; `note` of the study says why.
OPEN = {
    "data parallel first": {"tp, batch 32"},
    "PTD-P against ZeRO 3": {"ahead on 384 GPUs"},
    "scatter and gather": {"most with large batches, sends overlap"},
    "recompute": {"needed for large batches", "twice as fast there"},
    "micro-batch size": {"2 is best, batch 128", "and pays by them"},
    "speed-up": {"ZeRO 3 within 1 %"},
    "ZeRO 2's reductions": {"at a rate of 1.0"},
    "tensor and pipeline groups": {"best with b 1", "best with b 2"},
}
STUDIES = {study.name: study for study in (*claims_megatron.studies(), *claims_cheng.studies())}


def values_of(study: Study) -> Values:
    return study.figures([outcome(point) for point in study.points])


@pytest.mark.parametrize("name", STUDIES)
def test_ordering_comes_out_but_for_what_is_known(name: str) -> None:
    """Narayanan et al. 2021, figures 12 to 18, and Cheng et al. 2024: every part of a finding."""
    study = STUDIES[name]
    parts = study.judge(values_of(study))
    assert {part for part, holds in parts.items() if not holds} == OPEN.get(name, set())
    assert study.note or name not in OPEN


def test_the_readme_has_the_findings_of_the_last_run() -> None:
    """Those at the end of the stored records, each once."""
    last = dict[str, findings.Figures]()
    for record in reversed(stored(RESULTS / "findings.jsonl")):
        if last.setdefault(record["study"], record) is not record:
            break
    text = findings.README.read_text(encoding="utf-8")
    assert findings.with_table(text, reversed(last.values())) == text


@pytest.mark.slow
def test_table_1_is_within_eight_per_cent(reference: Path) -> None:
    """Simulated steps of 1.7 to 530 B on 32 to 2,520 A100."""
    assert claims_megatron.mean_error(values_of(claims_megatron.rows(reference))) <= 0.08


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "chosen"), [("megatron_162b", (8, 1, 8)), ("megatron_5_9b", (1, 32, 2))]
)
def test_search_chooses_the_published_degrees(name: str, chosen: tuple[int, int, int]) -> None:
    """Of all tp x dp x pp: tensor inside and pipeline across; the most replicas that fit."""
    plan = present(solve(load_instance(FOLDER / f"{name}.yaml"), SolveOptions(gap=0.01)).plan)
    assert (plan.config.widest_tp, plan.config.dp, plan.config.pp) == chosen
