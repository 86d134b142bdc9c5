"""What plans say of strategies, sources and terms that their figures rest on."""

from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.instance.search import Overlap, ZeroStage
from solver.report.assumptions import assumptions, evidence_lines, flash_lines, renting_lines
from solver.report.layout import Labelled
from solver.report.naming import degrees_of
from tests.report.shown import PLANS, drawn, plan, stored
from tests.small_families import mixed
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
    shares = {"tensor_parallel": 0.25, "gradient_sync": 0.9, "sharding": 0.61}
    overlap = Overlap(kind="measured", source="test", **shares)
    hidden = instance("").but(search={"overlap": overlap.model_copy()})
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
        ("fp16: 100 TFLOP/s, bf16: 100 TFLOP/s, fp8: 200 TFLOP/s", "", 8.9),
        ("fp16: 100 TFLOP/s, bf16: 100 TFLOP/s", ", compute_capability: 9.0", 9.0),
        ("fp16: 100 TFLOP/s, fp32: 15 TFLOP/s", "", None),
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
    degrees = degrees_of(document)
    told = [str(assumptions(x, document.config, degrees)) for x in (other, document.instance)]
    assert ["spot prices of fast, slow: " in lines for lines in told] == [True, False]
