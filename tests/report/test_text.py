"""Words and tables of a plan say what the plan file says, on a terminal of any width."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from formulations.costs.plan_costs import PlanCosts
from formulations.decisions import Decisions
from formulations.instance import SearchSpace, ZoneLink
from formulations.instance.huggingface import sizes_from_config
from formulations.instance.transformer import build_workload
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.report.catalogue import workload_report
from solver.report.critical import busy_share, improvements
from solver.report.document import build_document, costs_of
from solver.report.layout import labelled, table
from solver.report.naming import layers_text
from solver.report.quantities import (
    node_ranges,
)
from solver.report.stages import memory_table, placed, stage_table, traffic_table, zone_lines
from solver.report.step import text_timeline
from solver.report.text import (
    chain_text,
    cluster_text,
    plan_space_text,
    plan_text,
    solution_text,
)
from solver.result import Status, Termination
from solver.simulate import Step, simulate_step, step_time_ns
from tests.certified_cases import CASES
from tests.equal_nodes import equal_nodes
from tests.hand_made import (
    document_of,
    pipelined_result,
    planless_result,
    result_of,
    results,
)
from tests.seeds import few_and_many

GPT_OSS = Path(__file__).resolve().parent.parent / "data" / "huggingface" / "gpt-oss-20b.json"
SVG = "{http://www.w3.org/2000/svg}"


def drawn(parts: list[RenderableType], columns: int) -> str:
    """What a terminal of so many columns shows."""
    console = Console(width=columns, color_system=None)
    with console.capture() as captured:
        for part in parts:
            console.print(part, markup=False)
    return captured.get()


def printed(parts: list[RenderableType]) -> str:
    """What a 100-column terminal shows."""
    return drawn(parts, 100)


def test_layers_of_many_runs_are_counted() -> None:
    """A chain that alternates says how many of each kind there are."""
    config = json.loads(GPT_OSS.read_text(encoding="utf-8"))
    workload = build_workload(
        sizes_from_config(config, "c"),
        name="w",
        source="t",
        sequence_length=256,
        global_batch=8,
        flash_attention=True,
    )
    assert chain_text(workload) == "1 embedding, 12 sliding_block, 12 block, 1 head"
    assert "12 of 0-22  sliding_block" in printed(workload_report(workload))


def test_placed_joins_nodes_and_gpus(document: PlanDocument) -> None:
    """Equal GPUs of several nodes are named once."""
    stages = [stage for replica in document.replicas for stage in replica.stages]
    assert placed(stages) == "fast-0..1: 0-1"


def test_idle_nodes_are_named() -> None:
    """Nodes without work stand in the document and in the text."""
    result = next(
        one
        for one in results(range(200))
        if one.plan is not None and len(one.plan.node_order) < len(one.instance.cluster.node_names)
    )
    document = document_of(result)
    assert {*document.idle_nodes, *document.node_order} == set(document.instance.cluster.node_names)
    text = printed(solution_text(document))
    assert re.search(rf"^idle +{node_ranges(document.idle_nodes)} *$", text, re.MULTILINE)


def test_free_nodes_print_no_money() -> None:
    """A price of zero is not worth a line."""
    result = pipelined_result()
    cluster = result.instance.cluster
    free = tuple(group.but(price_usd_per_hour=0.0) for group in cluster.groups)
    instance = result.instance.but(cluster=cluster.but(groups=free))
    document = document_of(replace(result, instance=instance))
    text = printed(solution_text(document))
    assert "USD" not in text


@pytest.mark.parametrize(
    ("search", "line"),
    [
        (SearchSpace(), "any target, uniform degrees, even micro-batches"),
        (
            SearchSpace(micro_batches="uneven"),
            "any target, uniform degrees, uneven micro-batches",
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


def test_result_text_groups_identical_replicas(document: PlanDocument, step: Step) -> None:
    """One line per stage: both replicas do the same."""
    text = printed(solution_text(document))
    rows = [line.split()[:3] for line in text.splitlines() if re.match(r"\d +\S, \S +0-1 ", line)]
    assert rows == [["0", "E,", "0"], ["1", "1,", "H"]]


def test_result_text_has_a_unit_behind_every_figure(document: PlanDocument, step: Step) -> None:
    """Step time, throughput, money, memory, bound, gap and seconds are there, with units."""
    text = printed(solution_text(document))
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


@pytest.mark.parametrize("seeds", few_and_many(range(12), 4))
def test_tables_fit_a_terminal_of_eighty_columns(seeds: Sequence[int]) -> None:
    """Headings and cells are broken between words alone, numbers never, for plans of many forms."""
    for result in results(seeds):
        document = document_of(result)
        for grid in (stage_table(document), memory_table(document), traffic_table(document)):
            lines = drawn([grid], 80).splitlines()
            assert max(map(len, lines)) <= 80
            words = {word for row in grid.rows for cell in row for word in cell.split()}
            assert words <= {word for line in lines for word in line.split()}


def test_words_are_broken_where_nothing_else_helps() -> None:
    """A column of text keeps eight characters a line; no number loses a digit."""
    lines = drawn([table(["node"], ["time ms"], [["abcdefghijkl", "123456.789"]])], 20).splitlines()
    assert [line.split() for line in lines] == [
        ["node", "time", "ms"],
        ["─" * 20],
        ["abcdefgh", "123456.789"],
        ["ijkl"],
    ]


def test_lines_keep_numbers_with_their_units() -> None:
    """A labelled line breaks before a number, not behind it."""
    lines = drawn([labelled([("GPUs", "none, ZeRO 1, 12.5 % and 4 GiB")])], 22).splitlines()
    assert [line[14:].rstrip() for line in lines] == ["none,", "ZeRO 1,", "12.5 %", "and", "4 GiB"]


def test_layers_have_the_numbers_of_megatron() -> None:
    """Blocks from 0, whatever stands before them; embedding and head by letter."""
    workload = equal_nodes(2, 4, 1, 2, 4).instance.workload
    last = len(workload.layers) - 1
    assert layers_text(workload, [0, 1, 2]) == "E, 0-1"
    assert layers_text(workload, [last, last - 1]) == f"{last - 2}, H"
    assert layers_text(workload, [0]) == "E"


def test_text_without_plan_tells_the_status() -> None:
    """UNKNOWN is told apart from INFEASIBLE."""
    document = document_of(planless_result(Status.UNKNOWN, Termination.TIME_LIMIT))
    text = printed(solution_text(document))
    assert "no plan found, and no proof that there is none" in text
    assert "the time limit was reached" in text


def test_plan_text_places_every_group(document: PlanDocument, step: Step) -> None:
    """Node by node: GPU, stage and replica."""
    text = printed(plan_text(document, step))
    lines = [line.split() for line in text.splitlines()]
    assert ["fast-0", "fast", "0", "0", "0"] in lines
    assert ["1", "0", "1"] in lines  # the second GPU of fast-0 runs stage 0 of replica 1
    assert ["fast-1", "fast", "0", "1", "0"] in lines


def test_chunks_are_lines_of_their_stage() -> None:
    """Stage by stage, chunk by chunk; place and memory of the GPUs stand with the first."""
    document = CASES["interleaved"]()
    text = printed(solution_text(document))
    assert "pipeline 2, 2 chunks per GPU, on 4 GPUs" in text
    assert "interleaved 1F1B schedule" in text
    assert re.search(r"forward ms +backward ms +used GiB +free GiB$", text, re.MULTILINE)
    pattern = r"^(\d) +(\d) +(\S+) +0 +(\S*: 0-1)?[a-z ]* [\d.]+ +[\d.]+(  [\d. ]+\d)? *$"
    rows = re.findall(pattern, text, re.MULTILINE)
    assert [row[:4] for row in rows] == [
        ("0", "0", "E", "slow-0: 0-1"),
        ("0", "1", "1", ""),
        ("1", "0", "0", "fast-0: 0-1"),
        ("1", "1", "H", ""),
    ]
    assert [bool(row[4]) for row in rows] == [True, False, True, False]


def test_weight_gradients_have_a_column() -> None:
    """What is put off of a backward pass stands beside it, and in the plan file."""
    document = CASES["split_backward"]()
    text = printed(solution_text(document))
    assert re.search(r"weights ms +used GiB", text)
    stages = document.replicas[0].stages
    assert all(0 < stage.weight_gradient_s < stage.backward_s for stage in stages)
    plain = CASES["pipelined"]().replicas[0].stages
    assert {stage.weight_gradient_s for stage in plain} == {0.0}


def _simulated(document: PlanDocument) -> tuple[PlanCosts, Step]:
    costs = costs_of(document)
    return costs, simulate_step(costs)


def test_chunks_and_weight_gradients_are_told_apart() -> None:
    """Small letters and other colours for later chunks; W and a legend for weight gradients."""
    drawn = {}
    for case in ("interleaved", "split_backward"):
        document = CASES[case]()
        step = simulate_step(costs_of(document))
        drawn[case] = text_timeline(document, step)
    text = drawn["interleaved"]
    assert re.search(r"^stage 0 [FBfb.SEOG]*f[FBfb.SEOG]* slow$", text, re.MULTILINE)
    assert "small letters: later chunks" in text
    text = drawn["split_backward"]
    assert "B input gradients, W weight gradients" in text


def test_bug_faster_gpus_put_off_shorter_weight_gradients() -> None:
    """10 % less compute shortens both parts of a backward pass, so saves 10 % at most."""
    document = CASES["split_backward"]()
    costs = costs_of(document)
    saved = dict(improvements(document, simulate_step(costs)))
    assert all(0 < part <= 0.1 + 1e-6 for part in saved.values())
    both = replace(
        costs,
        forward_ns=costs.forward_ns * 9 // 10,
        backward_ns=costs.backward_ns * 9 // 10,
        weight_ns=costs.weight_ns * 9 // 10,
    )
    whole = 1 - step_time_ns(both) / step_time_ns(costs)
    assert max(saved.values()) <= whole + 1e-9


@pytest.mark.parametrize("case", ["interleaved", "split_backward"])
def test_busy_share_is_that_of_the_gpus(case: str) -> None:
    """Bars of compute over two GPUs' steps, whatever the number of chunks."""
    document = CASES[case]()
    step = simulate_step(costs_of(document))
    busy_ns = sum(bar.end_ns - bar.start_ns for bar in step.operations(0))
    assert busy_share(document) == pytest.approx(busy_ns / (2 * step.step_time_ns), rel=1e-6)


SLOW = ZoneLink(bandwidth_bytes_per_s=1.25e8, latency_s=0.02, kind="measured", source="iperf, 2026")


def lines(zones: str, dp: int, pp: int) -> list[str]:
    """Of one node per slot, in these zones; x and z have a link of their own."""
    own = {"zx": SLOW} if {"x", "z"} <= set(zones) else {}
    tables = equal_nodes(len(zones), 1, 1, dp, pp, zones=zones, own=own)
    cuts = tuple(round(4 * k / pp) for k in range(pp + 1))
    plan = Decisions(tuple(range(len(zones))), cuts, (4 // dp,) * dp).plan(tables)
    document = build_document(result_of(tables.instance, plan), SolveOptions())
    return [": ".join(one) if one[0] else one[1] for one in zone_lines(document)]


ASSUMED = "4.000 Gbit/s, 1.000 ms, assumed by the instance"
MEASURED = "1.000 Gbit/s, 20.00 ms, measured (iperf, 2026)"


@pytest.mark.parametrize(
    ("zones", "dp", "pp", "expected"),
    [
        ("xxyy", 2, 2, [f"zones: x to y: activations after stage 0; {ASSUMED}"]),
        ("xyxy", 2, 2, [f"zones: x to y: gradients of stages 0-1; {ASSUMED}"]),
        (
            "xyzx",
            1,
            4,
            [
                f"zones: x to y: activations after stage 0; {ASSUMED}",
                f"x to z: activations after stage 2; {MEASURED}",
                f"y to z: activations after stage 1; {ASSUMED}",
            ],
        ),
        ("xx", 1, 2, []),
    ],
)
def test_links_are_named_with_what_crosses(
    zones: str, dp: int, pp: int, expected: list[str]
) -> None:
    """Stage by stage, with the figures of each pair's link; without zones there is no line."""
    assert lines(zones, dp, pp) == expected
