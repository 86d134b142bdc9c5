"""Words of a plan say what the plan file says."""

import re
from dataclasses import replace

import pytest

from formulations.instance import SearchSpace
from solver.document import PlanDocument
from solver.report.document import costs_of
from solver.report.quantities import node_ranges
from solver.report.text import (
    cluster_text,
    figures,
    heading_lines,
    outcome,
    plan_space_text,
    plan_text,
    solution_text,
)
from solver.result import Infeasibility, OtherTarget, Status, Termination
from solver.simulate import simulate_step
from tests.certified_cases import CASES
from tests.command_line import printed
from tests.equal_nodes import equal_nodes
from tests.hand_made import document_of, pipelined_result, planless_result


def test_idle_nodes_are_named() -> None:
    """Nodes without work stand in the document and in the text."""
    document = CASES["idle"]()
    assert document.idle_nodes
    assert {*document.idle_nodes, *document.node_order} == set(document.instance.cluster.node_names)
    assert ("idle", node_ranges(document.idle_nodes)) in figures(document)


def test_free_nodes_print_no_money() -> None:
    """A price of zero is not worth a line."""
    result = pipelined_result()
    cluster = result.instance.cluster
    free = tuple(group.but(price_usd_per_hour=0.0) for group in cluster.groups)
    instance = result.instance.but(cluster=cluster.but(groups=free))
    text = printed(*solution_text(document_of(replace(result, instance=instance))))
    assert "USD" not in text


@pytest.mark.parametrize(
    ("search", "line"),
    [
        (SearchSpace(), "any target, uniform degrees, even micro-batches"),
        (
            SearchSpace(degrees="per_group", micro_batches="uneven"),
            "any target, degrees per node group, uneven micro-batches",
        ),
        (
            SearchSpace(target="megatron", recompute_per="plan"),
            "Megatron-LM, uniform degrees, even micro-batches, recomputation alike in all stages",
        ),
    ],
)
def test_plan_space_is_told(search: SearchSpace, line: str) -> None:
    """Who is to launch the plans, and what they have in common."""
    assert plan_space_text(search) == line


def test_solution_has_a_unit_behind_every_figure(document: PlanDocument) -> None:
    """Step time, throughput, money, memory, bound, gap and seconds are there, with units."""
    text = printed(*solution_text(document))
    for figure in (
        r"step time +[\d.]+ ms",
        r"throughput +[\d.,]+ sequences/s",
        r"model FLOPs +[\d.]+ TFLOP/s per GPU, MFU [\d.]+ % of the dense bf16 peaks",
        r"money +[\d.]+ USD per step, [\d.]+ USD per hour",
        r"tightest on stage \d.* GiB free",
        r"status +optimal for any target: .* gap 0 %, lower bound [\d.]+ ms",
        r"shapes +0 infeasible, 0 bounded, 1 solved, 0 open",
        r"search +exact, 0.500 s",
        r"limited by +[\d.]+ %",
        r"faster with +10 % less time for .* saves [\d.]+ % of the step",
    ):
        assert re.search(figure, text), figure


def test_cluster_line_names_the_zones() -> None:
    """Each group with its zone, if there are any."""
    text = cluster_text(equal_nodes(2, 4, 1, 2, 4, zones="xy").instance)
    assert text == "1 node of 4 one in zone x, 1 node of 4 one in zone y"
    assert cluster_text(equal_nodes(2, 4, 1, 2, 4).instance) == "2 nodes of 4 one"


def test_shapes_in_words(document: PlanDocument) -> None:
    """Degrees, GPUs, strategies, micro-batches and schedule; chunks of interleaved plans."""
    lines = [text for _, text in heading_lines(document)]
    assert "tensor 1 x data 2 x pipeline 2 on 4 GPUs, no recomputation, ZeRO 1" in lines
    count, size = document.replicas[0].micro_batches, document.shape and document.shape.micro_batch
    assert f"{count} micro-batches of {size} sequence per replica, 1F1B schedule" in lines
    text = printed(*solution_text(CASES["interleaved"]()))
    assert "pipeline 2, 2 chunks per GPU, on 4 GPUs" in text
    assert "interleaved 1F1B schedule" in text


def test_text_without_plan_tells_the_status() -> None:
    """UNKNOWN is told apart from INFEASIBLE, of which reason and remedy are named."""
    document = document_of(planless_result(Status.UNKNOWN, Termination.TIME_LIMIT))
    text = printed(*solution_text(document))
    assert "no plan found, and no proof that there is none" in text
    assert "the time limit was reached" in text
    document = document_of(planless_result(Status.INFEASIBLE, Termination.CLOSED))
    text = printed(*solution_text(document, Infeasibility("memory", "larger GPUs")))
    assert "infeasible: proved that there is no plan for any target" in text
    assert "not met       memory" in text
    assert "would help    larger GPUs" in text


def test_other_targets_say_what_they_may_bring(document: PlanDocument) -> None:
    """What was seen there, what is not ruled out, and what nobody had time for, together."""
    others = [
        OtherTarget(target="torchtitan", gain=0.2, found_gain=0.1, search="{a: b}"),
        OtherTarget(target="megatron", gain=0.3, search="{c: d}"),
        OtherTarget(target="flagscale", gain=None, search="{}"),
    ]
    lines = [text for label, text in outcome(document, others) if label == "elsewhere"]
    assert lines == [
        "torchtitan: 10.0 % faster, at most 20.0 %, with search: {a: b}",
        "Megatron-LM: not yet ruled out that a plan is up to 30.0 % faster, with search: {c: d}",
        "not yet looked at for want of time: FlagScale; `explain` does",
    ]


def test_plan_text_has_all_tables(document: PlanDocument) -> None:
    """What `show` prints: stages, memory, traffic, places, timeline, figures."""
    text = printed(*plan_text(document, simulate_step(costs_of(document))))
    parts = (
        "stages; times",
        "memory per GPU\n",
        "traffic and update",
        "node    GPU type",
        "one step",
    )
    places = [text.index(part) for part in (*parts, "step time", "plan space")]
    assert places == sorted(places)
    split = CASES["split_backward"]()
    text = printed(*solution_text(split))
    assert "(weights: the part of backward that is put off)" in text
