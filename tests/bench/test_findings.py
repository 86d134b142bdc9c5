"""Which published findings come out, part by part."""

from pathlib import Path

import pytest

from bench import claims_cheng, claims_megatron
from bench.claims import FOLDER, Point, Study, Values, outcome
from formulations.instance.load import load_instance
from solver.options import SolveOptions
from solver.search.driver import solve

#: Parts of each study that do not come out; `note` of the study says why.
OPEN = {
    "data parallel first": {"tp, batch 32"},
    "PTD-P against ZeRO 3": {"ahead on 384 GPUs"},
    "scatter and gather": {"most with large batches, sends overlap"},
    "recompute": {"needed for large batches", "twice as fast there"},
    "micro-batch size": {"2 is best, batch 128", "and pays by them"},
    "speed-up": {"ZeRO 3 within 1 %"},
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
    plan = solve(load_instance(FOLDER / f"{name}.yaml"), SolveOptions(gap=0.01)).plan
    assert plan is not None
    assert (plan.config.widest_tp, plan.config.dp, plan.config.pp) == chosen


def test_published_flops_are_counted() -> None:
    """96 B s l h^2 (1 + s / 6h + V / 16lh) for 162 B at batch 128: Narayanan et al. 2021, 5.1."""
    s, l, h, v = 2048, 32, 20480, 51200  # noqa: E741
    flops = 96 * 128 * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h))
    point = Point("", "", "megatron_162b", {"tp": 8, "pp": 8})
    assert outcome(point).flops == pytest.approx(flops, rel=1e-12)
    # 5.9 B on one GPU: 18 bytes per parameter are 98 GiB, and no step
    assert outcome(Point("all", "1", "megatron_5_9b", {})).step_s is None
