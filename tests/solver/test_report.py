"""Reports: documents, tables, timeline and picture say what the plan and the simulator say."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from formulations.costs.plan_costs import plan_costs
from formulations.errors import PlanError
from formulations.instance import Objective, SearchSpace
from formulations.instance.huggingface import sizes_from_config
from formulations.instance.transformer import build_workload
from formulations.units import seconds
from solver.document import PlanDocument
from solver.files import digest, sealed, to_json
from solver.report.catalogue import workload_report
from solver.report.document import costs_of, plan_of
from solver.report.layout import labelled, table
from solver.report.naming import layers_text
from solver.report.quantities import (
    counted,
    decimal_text,
    money,
    node_ranges,
    percent,
    ranges,
    round_time_text,
    significant,
    size_text,
    time_text,
)
from solver.report.stages import memory_table, placed, stage_table, traffic_table
from solver.report.text import (
    chain_text,
    cluster_text,
    plan_space_text,
    plan_text,
    result_text,
)
from solver.result import Status, Termination
from solver.simulate import Step, simulate_step
from tests.equal_nodes import equal_nodes
from tests.hand_made import document_of, pipelined_result, planless_result, results
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


# The document


@pytest.mark.parametrize("seeds", few_and_many(range(25), 3))
def test_document_of_a_plan_gives_the_plan_back(seeds: Sequence[int]) -> None:
    """Names and numbers of nodes translate both ways, for plans of many forms."""
    for result in results(seeds):
        assert plan_of(document_of(result)) == result.plan


def test_document_survives_the_plan_file(document: PlanDocument, tmp_path: Path) -> None:
    """Written as JSON and read again it is the same, digest included."""
    path = tmp_path / "plan.json"
    path.write_text(to_json(document), encoding="utf-8")
    assert PlanDocument.read(path) == document
    assert digest(document.model_dump(mode="json")) == document.digest


def test_document_has_the_simulated_figures(document: PlanDocument) -> None:
    """Step time, throughput and money follow from the simulator, the batch and the rent."""
    result = pipelined_result()
    assert result.step_time_ns is not None
    step_s = result.step_time_ns / 1e9
    price = 2 * result.instance.cluster.groups[0].price_usd_per_hour  # nodes_used is (2,)
    assert document.shape is not None
    assert document.shape.nodes_used == (2,)
    assert document.step_time_s == document.lower_bound_s == pytest.approx(step_s)
    batch = result.instance.workload.global_batch
    assert document.throughput_sequences_per_s == pytest.approx(batch / step_s)
    assert document.price_usd_per_hour == pytest.approx(price)
    assert document.cost_usd_per_step == pytest.approx(price * step_s / 3600)
    assert document.gap == 0
    assert document.time_sources == ("analytic",)


def test_document_sends_nothing_beyond_the_ends(document: PlanDocument) -> None:
    """The last stage sends no activations on, the first no gradients back; the others do."""
    for replica in document.replicas:
        first, last = replica.stages
        assert first.send_backward_s == last.send_forward_s == 0
        assert first.send_forward_s == last.send_backward_s > 0


def test_document_sync_is_reduction_and_gather(document: PlanDocument) -> None:
    """With ZeRO 1 the gradient sync of a stage includes the gather of its parameters."""
    costs = plan_costs(document.instance, plan_of(document))
    assert costs.gather_ns.min() > 0
    for replica in document.replicas:
        for k, stage in enumerate(replica.stages):
            sync_ns = int(costs.sync_ns[k] + costs.gather_ns[k])
            assert stage.gradient_sync_s == seconds(sync_ns)


@pytest.mark.parametrize("seeds", few_and_many(range(25), 4))
def test_step_and_memory_are_the_sums_that_the_document_shows(seeds: Sequence[int]) -> None:
    """To the nanosecond and to the byte, for plans of many forms."""
    for result in results(seeds):
        document = document_of(result)
        assert document.critical_path is not None
        parts_s = document.critical_path.model_dump().values()
        assert sum(round(1e9 * part) for part in parts_s) == result.step_time_ns
        for stage in (stage for replica in document.replicas for stage in replica.stages):
            assert sum(stage.memory.model_dump().values()) == stage.memory_bytes


def test_document_has_the_parts_of_the_memory(document: PlanDocument) -> None:
    """Stage 0 of 2 keeps two micro-batches in flight; ZeRO 1 halves 12 bytes a parameter."""
    assert document.shape is not None
    assert (document.shape.widest_tp, document.shape.dp, document.shape.zero) == (1, 2, 1)
    workload, memory = document.instance.workload, document.replicas[0].stages[0].memory
    layers = workload.layers[slice(*document.replicas[0].stages[0].layers)]
    counts = [layer.parameters_per_gpu(1, 2) for layer in layers]
    assert (memory.weights_bytes, memory.gradients_bytes) == (2 * sum(counts), 4 * sum(counts))
    assert memory.optimizer_bytes == 12 * sum(-(-count // 2) for count in counts)
    b = document.shape.micro_batch
    assert memory.activations_bytes == 2 * b * sum(layer.activation_bytes(1) for layer in layers)
    assert memory.buffers_bytes == 2 * b * workload.boundary_bytes
    assert memory.reserve_bytes == document.instance.limits.framework_reserve_bytes


def test_document_has_model_flops_and_their_share_of_the_peaks(document: PlanDocument) -> None:
    """Forward plus twice that, over 4 GPUs of 120 TFLOP/s in bf16."""
    workload = document.instance.workload
    forward = sum(layer.forward_flops for layer in workload.layers) * workload.global_batch
    assert document.step_time_s is not None
    assert document.model_flop_per_s_per_gpu == pytest.approx(
        3 * forward / document.step_time_s / 4
    )
    assert document.mfu == pytest.approx(3 * forward / document.step_time_s / (4 * 120e12))


def test_training_cost_is_that_of_all_steps() -> None:
    """1,000 steps cost 1,000 times one step."""
    result = pipelined_result()
    objective = Objective(minimize="training_cost", steps=1000)
    instance = result.instance.but(objective=objective)
    document = document_of(replace(result, instance=instance))
    assert document.cost_usd_per_step is not None
    assert document.training_cost_usd == pytest.approx(1000 * document.cost_usd_per_step)


def test_bound_of_money_is_shown_at_the_rent_of_the_plan() -> None:
    """Where money is minimised, bound / rent is a time that leaves the same gap."""
    result = pipelined_result()
    instance = result.instance.but(objective=Objective(minimize="cost_per_step"))
    assert result.step_time_ns is not None
    rent = 2 * instance.cluster.groups[0].price_usd_per_hour
    objective = rent * result.step_time_ns
    document = document_of(
        replace(
            result,
            instance=instance,
            objective=objective,
            bound=objective * 0.75,
            requested_gap=0.25,
        )
    )
    assert document.step_time_s is not None
    assert document.gap == pytest.approx(0.25)
    assert document.lower_bound_s == pytest.approx(0.75 * document.step_time_s)


def test_document_without_plan_has_no_figures() -> None:
    """Unknown figures are null, not zero."""
    document = document_of(planless_result(Status.UNKNOWN, Termination.TIME_LIMIT))
    figures = document.model_dump(include={"shape", "step_time_s", "gap", "cost_usd_per_step"})
    assert set(figures.values()) == {None}
    assert document.replicas == ()
    assert document.node_order == ()


def test_changed_document_is_not_shown(document: PlanDocument) -> None:
    """A file that was edited after solve wrote it is refused in one line."""
    changed = document.but(step_time_s=1.0)
    with pytest.raises(PlanError, match=r"digest: the plan file was changed"):
        plan_of(changed)


def test_senseless_document_is_not_shown(document: PlanDocument) -> None:
    """A sealed file with a node that the cluster lacks is refused in one line too."""
    changed = sealed(document.but(node_order=("moon-0", "fast-1")))
    with pytest.raises(PlanError, match=r"a plan that verify accepts"):
        costs_of(changed)


def test_document_without_plan_is_not_shown() -> None:
    """The refusal names the status."""
    document = document_of(planless_result(Status.INFEASIBLE, Termination.CLOSED))
    with pytest.raises(PlanError, match=r"no plan \(status infeasible\)"):
        plan_of(document)


# Numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (significant(1234.56), "1,235"),
        (significant(0.00123456), "0.001235"),
        (significant(0), "0"),
        (time_text(1.23456), "1.235 s"),
        (time_text(0.0123456), "12.35 ms"),
        (time_text(4e-7), "400.0 ns"),
        (time_text(0.0123456, like=2.0), "0.012 s"),
        (time_text(0.0, like=0.0123), "0 ms"),
        (round_time_text(0.3, like=0.9), "300 ms"),
        (size_text(40 << 30), "40.00 GiB"),
        (size_text(512 << 20, like=40 << 30), "0.50 GiB"),
        (decimal_text(312e12, "FLOP/s"), "312 TFLOP/s"),
        (percent(0.0), "0 %"),
        (percent(0.0123), "1.2 %"),
        (percent(0.00001234), "0.0012 %"),
        (money(0.0052954), "0.005295 USD"),
        (money(1234.5), "1,234.50 USD"),
        (counted(1, "stage"), "1 stage"),
        (counted(2048, "stage"), "2,048 stages"),
        (ranges([3, 0, 1, 2, 6]), "0-3, 6"),
        (node_ranges(["a10-1", "a10-0", "a100-0"]), "a10-0..1, a100-0"),
    ],
)
def test_numbers_read_well(text: str, expected: str) -> None:
    """Four significant digits, thousands apart, runs joined, a unit behind."""
    assert text == expected


# Tables and words


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
    text = printed(result_text(document, costs_of(document), simulate_step(costs_of(document))))
    assert re.search(rf"^idle +{node_ranges(document.idle_nodes)} *$", text, re.MULTILINE)


def test_free_nodes_print_no_money() -> None:
    """A price of zero is not worth a line."""
    result = pipelined_result()
    cluster = result.instance.cluster
    free = tuple(group.but(price_usd_per_hour=0.0) for group in cluster.groups)
    instance = result.instance.but(cluster=cluster.but(groups=free))
    document = document_of(replace(result, instance=instance))
    text = printed(result_text(document, costs_of(document), simulate_step(costs_of(document))))
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
    text = printed(result_text(document, costs_of(document), step))
    rows = [line.split()[:3] for line in text.splitlines() if re.match(r"\d +\S, \S +0-1 ", line)]
    assert rows == [["0", "E,", "0"], ["1", "1,", "H"]]


def test_result_text_has_a_unit_behind_every_figure(document: PlanDocument, step: Step) -> None:
    """Step time, throughput, money, memory, bound, gap and seconds are there, with units."""
    text = printed(result_text(document, costs_of(document), step))
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
def test_result_text_fits_a_hundred_columns(seeds: Sequence[int]) -> None:
    """No cell of a number is cut or folded, for plans of many forms."""
    for result in results(seeds):
        document = document_of(result)
        costs = costs_of(document)
        text = printed(result_text(document, costs, simulate_step(costs)))
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= 100


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
    text = printed(result_text(document, None, None))
    assert "no plan found, and no proof that there is none" in text
    assert "the time limit was reached" in text


def test_plan_text_places_every_group(document: PlanDocument, step: Step) -> None:
    """Node by node: GPU, stage and replica."""
    text = printed(plan_text(document, step))
    lines = [line.split() for line in text.splitlines()]
    assert ["fast-0", "fast", "0", "0", "0"] in lines
    assert ["1", "0", "1"] in lines  # the second GPU of fast-0 runs stage 0 of replica 1
    assert ["fast-1", "fast", "0", "1", "0"] in lines
