"""What crosses between zones: by construction, by cost, and as the link between them slows down."""

import random
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.instance import Cluster, Instance, ZoneLink
from formulations.instance.load import load_instance
from formulations.instance.machines import ZonePair
from formulations.plan import Plan
from formulations.space import configs
from formulations.switching.switch import Line, Network
from solver.options import SolveOptions
from solver.search.driver import solve
from solver.simulate import step_time_ns
from tests.expert_instances import expert_instance
from tests.oracles.switch import Network as VerifiedNetwork
from tests.random_configs import zoned
from tests.seeds import one_each
from tests.spot_instances import few_stages

INSTANCES = Path(__file__).resolve().parents[2] / "instances"


def slower(instance: Instance, factor: float) -> Instance:
    """The instance with so much less bandwidth between zones, and so much more latency."""
    link = instance.cluster.zone_link
    assert link is not None
    changed = {
        "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s / factor,
        "latency_s": link.latency_s * factor,
    }
    return instance.but(cluster={"zone_link": link.model_copy(update=changed)})


@cache
def two_zones() -> Instance:
    """Of the instance the micro-batches of 4 and 16, on one GPU each, ZeRO 1: less to search."""
    instance = load_instance(INSTANCES / "two_zones.yaml")
    few = {"tensor_parallel": (1,), "micro_batch": (4, 16), "zero": (1,), "recompute": ("none",)}
    return instance.but(search=few)


@cache
def plan_at(factor: float) -> tuple[Plan, int]:
    """The best plan of two_zones with a link so many times slower, and its step time."""
    result = solve(slower(two_zones(), factor))
    assert result.plan is not None
    assert result.step_time_ns is not None
    return result.plan, result.step_time_ns


def zones(instance: Instance, plan: Plan) -> list[list[str | None]]:
    """[stage][replica] where they stand."""
    groups, group = instance.cluster.groups, instance.cluster.node_groups
    stages = zip(*(replica.stages for replica in plan.replicas), strict=True)
    return [[groups[group[one.group.node]].zone for one in stage] for stage in stages]


def crossings(found: Sequence[Sequence[str | None]]) -> tuple[int, int]:
    """Stages that span zones, and messages that cross between stages."""
    spanning = sum(len(set(stage)) > 1 for stage in found)
    return spanning, sum(a != b for pair in pairwise(found) for a, b in zip(*pair, strict=True))


def test_two_zones_exchange_activations_once() -> None:
    """Gradients stay inside a zone; both replicas go from one zone to the other at one boundary."""
    plan, _ = plan_at(1)
    assert plan.config.dp == 2
    assert crossings(zones(two_zones(), plan)) == (0, 2)


def test_nothing_crosses_a_hopeless_link() -> None:
    """Ten times slower, the other zone is left idle; from there on the step takes as long."""
    instance = two_zones()
    (plan, time_ns), (_, fast_ns) = plan_at(10), plan_at(1)
    assert {zone for stage in zones(instance, plan) for zone in stage} == {"us-west-2a"}
    assert time_ns > fast_ns
    assert plan_at(10_000)[1] == time_ns


def test_three_zones_keep_replicas_together() -> None:
    """No gradients cross between zones; activations take the near link and the far one."""
    instance = load_instance(INSTANCES / "three_zones.yaml")
    few = {"tensor_parallel": (1,), "micro_batch": (16,), "zero": (1,), "data_parallel": (4,)}
    plan = solve(instance.but(search=few | {"idle_nodes": False}), SolveOptions(gap=0.02)).plan
    assert plan is not None
    found = zones(instance, plan)
    assert crossings(found)[0] == 0
    order = list(dict.fromkeys(stage[0] for stage in found))
    assert set(order) == {"us-west-2a", "us-west-2b", "us-east-1a"}
    assert order[1] != "us-east-1a"  # the far one is at an end


@pytest.mark.parametrize("seed", one_each(range(60), 4))
def test_a_slower_link_never_costs_a_plan_more(seed: int) -> None:
    """The slowing costs the plan that is then the best no more than the one before.

    Best before P, then Q: fast(P) <= fast(Q) <= slow(Q) <= slow(P). So as the link slows down, no
    plan is chosen that depends on it more.
    """
    instance = zoned(few_stages(seed), seed)
    if instance.cluster.zone_link is None:
        return
    links = [slower(instance, factor) for factor in (1.0, 4.0, 64.0)]
    plans = [one.plan for one in map(solve, links)]
    for (fast, slow), (first, second) in zip(pairwise(links), pairwise(plans), strict=True):
        if first is None or second is None:
            assert first is second
            continue
        times = {
            name: [step_time_ns(plan_costs(link, plan)) for link in (fast, slow)]
            for name, plan in (("first", first), ("second", second))
        }
        assert times["first"][0] <= times["second"][0] <= times["second"][1] <= times["first"][1]


def several_zones(seed: int, zones: str = "xyzx") -> Instance:
    """Some nodes in these zones, pairs of x, y and z with links of their own."""
    rng = random.Random(seed)
    instance = few_stages(seed)
    nodes = [group for group in instance.cluster.groups for _ in range(group.nodes)]
    nodes = (nodes * 3)[:4]
    groups = tuple(node.but(name=f"n{i}", nodes=1, zone=zones[i]) for i, node in enumerate(nodes))
    speeds = [3e7, 3e8, 2e9]
    rng.shuffle(speeds)
    own = tuple(
        ZonePair(zones=pair, link=ZoneLink(bandwidth_bytes_per_s=speed, latency_s=1e-4))
        for pair, speed in zip((("x", "y"), ("z", "y"), ("x", "z")), speeds, strict=True)
    )
    common = ZoneLink(bandwidth_bytes_per_s=1e8, latency_s=1e-4) if "w" in zones else None
    cluster = instance.cluster.but(groups=groups, zone_links=own, zone_link=common)
    return instance.but(cluster=Cluster.model_validate(cluster.model_dump()))


@pytest.mark.parametrize("zones", ["xyzx", "xyzw"])
@pytest.mark.parametrize("seed", one_each(range(40), 5))
def test_the_order_of_zones_changes_nothing(seed: int, zones: str) -> None:
    """Nor do the names that they have, nor the order in which a pair names its zones."""
    instance, rng = several_zones(seed, zones), random.Random(seed)
    names = dict(zip("wxyz", rng.sample("abcd", 4), strict=True))
    groups = [g.but(zone=names[g.zone or ""]) for g in instance.cluster.groups]
    rng.shuffle(groups)
    own = [
        pair.but(zones=(names[pair.zones[1]], names[pair.zones[0]]))
        for pair in instance.cluster.zone_links
    ]
    update = {"groups": tuple(groups), "zone_links": tuple(own[::-1])}
    moved = instance.but(cluster=update)
    assert solve(moved).objective == solve(instance).objective


@pytest.mark.parametrize("seed", one_each(range(40), 20))
def test_a_faster_pair_is_never_worse(seed: int) -> None:
    """Ten times the bandwidth between two of three zones, for each pair."""
    instance = several_zones(seed)
    own, before = instance.cluster.zone_links, solve(instance).objective
    for i, pair in enumerate(own):
        speed = 10 * pair.link.bandwidth_bytes_per_s
        faster = (*own[:i], pair.but(link={"bandwidth_bytes_per_s": speed}), *own[i + 1 :])
        after = solve(instance.but(cluster={"zone_links": faster})).objective
        assert (before is None) == (after is None)
        assert before is None or after is None or after <= before


def test_a_switch_takes_the_link_of_each_pair() -> None:
    """In the planner's network and in the verifier's, both ways; none leads from x to x."""
    cluster = several_zones(0).cluster
    ours, theirs = Network(cluster), VerifiedNetwork(cluster)
    rates = dict(zip(ours.lines, ours.ns_per_byte, strict=True))
    for pair in cluster.zone_links:
        expected = Fraction(10**9) / Fraction(pair.link.bandwidth_bytes_per_s)
        for one, other in (pair.zones, pair.zones[::-1]):
            ends = cluster.zones.index(one), cluster.zones.index(other)
            assert rates[Line("zone", *ends)] == expected
            assert theirs.ns_per_byte(("zone", one, other)) == expected
    with pytest.raises(KeyError):
        theirs.ns_per_byte(("zone", "x", "x"))


@pytest.mark.parametrize("seed", one_each(range(30), 6))
def test_experts_of_several_zones_stay_inside_a_node(seed: int) -> None:
    """No config that uses two zones shares experts, or sequences, among GPUs of two nodes."""
    instance = zoned(expert_instance(seed), seed)
    groups = instance.cluster.groups
    for config in configs(instance):
        used = [g for g, count in zip(groups, config.nodes_used, strict=True) if count]
        own = config.degrees[0]
        if len({group.zone for group in used}) > 1:
            assert all(group.gpus_per_node % own.width == 0 for group in used)
            lanes = config.expert_lanes(0)
            assert all(group.gpus_per_node // lanes % config.ep == 0 for group in used)
