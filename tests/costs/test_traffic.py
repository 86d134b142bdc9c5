"""What crosses links agrees with the times that costs have for it."""

import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import product

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import build_tables
from formulations.costs.traffic import Link, traffic
from formulations.decisions import Decisions
from formulations.instance import Instance
from formulations.instance.search import Overlap
from formulations.instance.transformer import build_workload
from formulations.space import configs
from tests.chain_instances import equal_nodes
from tests.conftest import present
from tests.costs.test_transfers import SMALL
from tests.hand_made import results
from tests.oracles.cases import drawn, drawn_plan
from tests.recorded import Cases, recorded
from tests.seeds import few_and_many
from tests.small_instances import with_groups
from tests.stage_degrees import stage_instance, unlike_instance


@pytest.mark.parametrize("p", [2, 3, 6])
def test_traffic_of_zero_in_data_parallels_is_that_of_cheng_et_al(p: int) -> None:
    """An all-reduce of gradients is two collectives, of two replicas with p micro-batches each.

    ZeRO 1 reduces and gathers once, 2 reduces p times; 3 gathers 2 p times, and reduces p times or,
    where gradients are kept, once: 1.5 p or p + 1/2 (section 3.1).
    """
    tables, sent = equal_nodes(2, 1, 2, 1), list[float]()
    work = build_workload(SMALL, name="t5", source="test", sequence_length=500, global_batch=2 * p)
    work = work.but(gradient_bytes=work.parameter_bytes)
    for zero, sync in ((0, True), (1, True), (2, True), (3, True), (3, False)):
        config = tables.config.but(zero=zero, sync_each_batch=sync)
        instance = tables.instance.but(workload=work)
        plan = Decisions((0, 0), (0, 6), (p, p)).plan(build_tables(instance, config))
        loads = traffic(instance, plan).items()
        sent.append(sum(load.size_bytes for flow, load in loads if flow.link == Link("out", 0)))
    shares = [bytes_sent / sent[0] for bytes_sent in sent]
    assert shares == pytest.approx([1, 1, (p + 1) / 2, 1.5 * p, p + 0.5])


@recorded("traffic")
def test_traffic_is_the_recorded_one() -> Cases:
    """Of every kind and link the bytes and seconds of all flows, of plans of every feature."""
    plans = [each[:3] for each in drawn(11, 23, 41, 44, 46, 59)]
    # stages or groups of unlike tensor groups, which do not split sequences
    for seed, make in product(range(6), (stage_instance, unlike_instance)):
        instance = make(seed).but(search={"sequence_parallel": False})
        for n, config in enumerate(list(configs(instance))[::7]):
            if config.per_stage or len(set(config.degrees_used)) > 1:
                made = drawn_plan(random.Random(seed), instance, config)
                plans += [(f"{make.__name__} {seed} {n}", instance, made)] if made else []
    for name, instance, plan in plans:
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for n, (flow, load) in enumerate(sorted(traffic(instance, plan).items(), key=str), 1):
            places = n * (flow.stage + 3 * flow.to_stage + 7 * sum(n for n in flow.link[1:] if n))
            of_kind = sums[f"{flow.kind} {flow.link.way}"]
            for i, figure in enumerate((load.size_bytes, load.busy_s, places)):
                of_kind[i] += figure
        yield name, [[kind, *figures] for kind, figures in sorted(sums.items())]


def prompt(instance: Instance) -> Instance:
    """The instance with links without latency, and nothing hidden."""
    at_once = {"latency_s": 0.0}
    instance = with_groups(instance, intra_node=at_once, inter_node=at_once)
    return instance.but(search={"overlap": Overlap()})


@pytest.mark.parametrize("seeds", few_and_many(range(30), 15))
def test_links_are_busy_for_as_long_as_costs_say(seeds: Sequence[int]) -> None:
    """Without latencies, messages and rings take what the fullest link on their way takes.

    A message waits for the slower of both ends; a ring goes inside nodes, then between them.
    """
    compared = 0
    for result in results(seeds):
        instance, plan = prompt(result.instance), present(result.plan)
        costs = plan_costs(instance, plan)
        config, micro_batches = plan.config, {replica.micro_batches for replica in plan.replicas}
        if config.zero > 1 or config.vpp > 1 or len(micro_batches) > 1 or config.has_expert_grid:
            continue
        busy_s: dict[tuple[str, int, int, bool], dict[object, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        for flow, load in traffic(instance, plan).items():
            inside = flow.link.way == "inside"
            kind = "rings" if flow.kind in ("sync", "gather") else flow.kind
            busy_s[kind, flow.stage, flow.to_stage, inside][flow.link] += load.busy_s
        of_rings = [
            link for (kind, *_), links in busy_s.items() if kind == "rings" for link in links
        ]
        if len(of_rings) > len({*of_rings}):  # a link that rings of two stages share
            continue
        longest_ns = {key: 1e9 * max(of_links.values()) for key, of_links in busy_s.items()}
        rounding = 8 * len(instance.workload.layers)
        for k in range(config.pp):
            rings_ns = sum(longest_ns.get(("rings", k, k, inside), 0) for inside in (False, True))
            stated = costs.sync_ns[k] + costs.gather_ns[k]
            assert rings_ns <= stated <= rings_ns + rounding
            compared += 1
        for k in range(config.pp - 1):
            sent = (
                max(longest_ns.get(("transfers", *ends, inside), 0) for inside in (False, True))
                for ends in ((k, k + 1), (k + 1, k))
            )
            assert max(sent) / micro_batches.copy().pop() == pytest.approx(
                costs.send_ns[k].max(), abs=2
            )
    assert compared


def test_tensor_groups_are_busy_for_what_faster_links_save() -> None:
    """Links twice as fast halve the seconds of all-reduces, and nothing else of the passes."""
    compared = set[str]()
    for _, drawn_instance, plan, _ in drawn(2, 11, 13, 16, 17, 46, 49, 59):
        instance, config = prompt(drawn_instance), plan.config
        exchanges = config.cp > 1 or config.ep > 1 or config.zero > 1
        if (
            exchanges
            or instance.profile
            or instance.calibration
            or instance.cluster.has_joined_nodes
        ):
            continue
        speeds = [2 * group.intra_node.bandwidth_bytes_per_s for group in instance.cluster.groups]
        links = [{"bandwidth_bytes_per_s": speed} for speed in speeds]
        passes = [
            (costs.forward_ns + costs.backward_ns).reshape(config.vpp, config.pp, -1).sum(axis=0)
            for each in (instance, with_groups(instance, intra_node=links))
            for costs in [plan_costs(each, plan)]
        ]
        for flow, load in traffic(instance, plan).items():
            if flow.kind == "tensor":
                k, r = present(flow.link.stage), present(flow.link.replica)
                replica = plan.replicas[r]
                saved_ns = replica.micro_batches * int(passes[0][k, r] - passes[1][k, r])
                rounding = 4 * replica.micro_batches * len(instance.workload.layers)
                assert abs(5e8 * load.busy_s - saved_ns) <= rounding
                compared |= {stage.recomputed.way for stage in replica.stages[k :: config.pp]}
                compared |= {"whole experts"} if config.etp else set()
    assert {"none", "full", "selective", "per_op", "whole experts"} <= compared
