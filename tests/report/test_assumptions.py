"""What plans say of strategies, sources and terms that their figures rest on."""

from pathlib import Path

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.instance.search import Overlap, ZeroStage
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.report.assumptions import (
    assumptions,
    cost_without_flash,
    evidence_lines,
    flash_lines,
    renting_lines,
)
from solver.report.layout import Labelled
from solver.report.naming import degrees_of
from solver.report.quantities import percent, size_text
from solver.search.driver import solve
from solver.simulate import step_time_ns
from tests.flash_families import mixed
from tests.report.shown import PLANS, drawn, plan, stored
from tests.small_instances import plain_config


def instance(workload: str) -> Instance:
    """BERT-large on four A100."""
    text = f"""
name: small
workload: {{catalogue: bert-large, precision: fp16{workload}}}
cluster: {{groups: [{{name: a, gpu: A100-40, gpus_per_node: 4, nodes: 1}}]}}
search: {{target: any}}
"""
    return parse_instance(text, "x.yaml", Path())


@pytest.mark.parametrize(
    ("workload", "tp", "zero", "words"),
    [
        ("", 1, 0, ["flash attention"]),
        ("", 2, 0, ["sequence parallel", "flash attention"]),
        ("", 1, 2, ["ZeRO 2: gradients reduced", "flash attention"]),
        ("", 1, 3, ["ZeRO 3: parameters gathered", "flash attention"]),
        (", optimizer_state: 8bit", 1, 0, ["Adam's moments in 8bit", "flash attention"]),
        (", flash_attention: false", 1, 0, ["workload.flash_attention is off"]),
    ],
)
def test_strategies_name_what_they_assume(
    workload: str, tp: int, zero: ZeroStage, words: list[str]
) -> None:
    """One line for each, and one for flash attention that every GPU has and that is off."""
    config = plain_config((1,), tp=tp, dp=4 // tp, zero=zero)
    lines = assumptions(instance(workload), config, config.degrees)
    assert len(lines) == len(words)
    for (label, text), start in zip(lines, words, strict=True):
        assert text.startswith(start)
        assert label == ("unused" if "is off" in start else "assumed")


@pytest.mark.parametrize(
    ("tp", "zero", "found"),
    [
        (1, 0, ["hidden 90.0 % of gradient sync behind backward"]),
        (2, 0, ["hidden 25.0 % of tensor-parallel traffic", "90.0 % of gradient sync"]),
        (1, 3, ["hidden 61.0 % of what every micro-batch exchanges"]),
        (4, 0, ["hidden 25.0 % of tensor-parallel traffic behind products (test)"]),
    ],
)
def test_hidden_traffic_is_that_of_the_plan(tp: int, zero: ZeroStage, found: list[str]) -> None:
    """Once, under the kind of the shares, and only what the plan's configuration exchanges."""
    one = instance("")
    shares = {"tensor_parallel": 0.25, "gradient_sync": 0.9, "sharding": 0.61}
    overlap = Overlap(kind="measured", source="test", **shares)
    search = one.search.model_copy(update={"overlap": overlap})
    hidden = one.model_copy(update={"search": search})
    config = plain_config((1,), tp=tp, dp=4 // tp, zero=zero)
    lines = assumptions(hidden, config, config.degrees)
    ((label, text),) = [line for line in lines if line[1].startswith("hidden")]
    assert label == "measured"
    assert all(words in text for words in found)
    assert text.count("%") == len(found)


def test_bug_one_old_gpu_took_flash_attention_from_all_without_a_word() -> None:
    """A plan, or a front, over GPUs of which some have none says which plans have it."""
    whole = mixed(0)
    texts = {
        (1, 0): "flash attention: no scores are kept; plans on old have none",
        (1, 1): "flash attention: none, as on old there is none; plans without these have it",
    }
    for used, text in texts.items():
        config = plain_config(used, tp=1, dp=1)
        assert assumptions(whole, config, config.degrees) == [("assumed", text)]
    text = "flash attention: where all GPUs of a plan have it, so not on old"
    assert flash_lines(whole) == [("assumed", text)]


def inline(peaks: str, more: str = "", gpus: str = "") -> Instance:
    """GPT-2 in fp16 on four GPUs that the catalogue does not list."""
    figures = "memory: 40 GiB, memory_bandwidth: 1555 GB/s, link: 300 GB/s"
    text = f"""
name: inline
workload: {{catalogue: gpt2, global_batch: 32, precision: fp16}}
cluster:
  groups:
    - {{name: a, gpus_per_node: 4, nodes: 1, inter_node: 100 Gbit/s,
       gpu: {{name: X, peak: {{{peaks}}}, {figures}{more}}}}}
{gpus}
search: {{tensor_parallel: 1, micro_batch: 8, recompute: none, zero: 1, target: any}}
"""
    return parse_instance(text, "x.yaml", Path())


@pytest.mark.parametrize(
    ("peaks", "more", "capability"),
    [
        ("fp16: 100 TFLOP/s, bf16: 100 TFLOP/s", "", 8.0),
        ("fp16: 100 TFLOP/s, tf32: 50 TFLOP/s", "", 8.0),
        ("fp16: 100 TFLOP/s, bf16: 100 TFLOP/s, fp8: 200 TFLOP/s", "", 8.9),
        ("fp16: 100 TFLOP/s, bf16: 100 TFLOP/s", ", compute_capability: 9.0", 9.0),
        ("fp16: 100 TFLOP/s, fp32: 15 TFLOP/s", "", None),
        ("fp16: 100 TFLOP/s, fp32: 15 TFLOP/s", ", compute_capability: 7.0", 7.0),
    ],
)
def test_bug_a_capability_left_out_took_flash_attention_from_all(
    peaks: str, more: str, capability: float | None
) -> None:
    """Precisions that no older GPU has say it, for the GPU and for those beside it."""
    beside = "    - {name: b, gpu: A100-40, gpus_per_node: 4, nodes: 1, inter_node: 100 Gbit/s}"
    both = inline(peaks, more, beside)
    assert both.cluster.groups[0].gpu.compute_capability == capability
    able = capability is not None and capability >= 8.0
    assert both.on((1, 1)).workload.flash_attention == able
    assert both.on((0, 1)).workload.flash_attention


def test_plan_without_flash_attention_for_want_of_a_capability_says_what_that_costs() -> None:
    """Time and memory of the same plan where the capability is stated; then there is no line."""
    peaks = "fp16: 312 TFLOP/s, fp32: 19.5 TFLOP/s"
    plain, stated = (inline(peaks, more) for more in ("", ", compute_capability: 8.0"))
    result = solve(plain)
    assert result.plan is not None
    document = build_document(result, SolveOptions())
    costs = [plan_costs(instance, result.plan) for instance in (plain, stated)]
    less_ns = 1 - step_time_ns(costs[1]) / step_time_ns(costs[0])
    less_bytes = (costs[0].memory_bytes - costs[1].memory_bytes).max()
    [(label, text)] = cost_without_flash(document, result.plan.config)
    assert label == "warning"
    assert "compute_capability of a is not stated" in text
    assert f"takes {percent(less_ns)} less time" in text
    assert f"up to {size_text(less_bytes)} less memory" in text
    for instance in (stated, inline(peaks, ", compute_capability: 7.0")):
        result = solve(instance)
        assert result.plan is not None
        document = build_document(result, SolveOptions())
        assert cost_without_flash(document, result.plan.config) == []


@pytest.mark.parametrize("name", PLANS)
def test_what_small_plans_rest_on(name: str) -> None:
    """Strategies, sources, terms of renting: prices, rates with their source, checkpoints."""
    document = plan(name)
    assert document.config is not None
    strategies = assumptions(document.instance, document.config, degrees_of(document))
    for lines in (strategies, evidence_lines(document), renting_lines(document)):
        assert drawn(Labelled(lines)) in stored(name)


def test_spot_prices_that_the_objective_leaves_out_are_named() -> None:
    """So that nobody takes a plan of least step time for one that looked at them."""
    document = plan("on_spot")
    assert document.config is not None
    other = document.instance.but(objective={"minimize": "cost_per_step"})
    unused = [
        line
        for label, line in assumptions(other, document.config, degrees_of(document))
        if label == "unused"
    ]
    assert any(line.startswith("spot prices of fast, slow: ") for line in unused)
    own = assumptions(document.instance, document.config, degrees_of(document))
    assert not any("spot prices" in line for _, line in own)
