"""What moves, the port bound and the published rule, beside an oracle that goes rank by rank."""

from collections.abc import Callable

import pytest

from formulations.instance import Cluster, Instance, Workload
from formulations.plan import Configuration, Degrees, Group, Plan, Recomputed, Replica, Stage
from formulations.switching.shards import Kind, layout_of
from formulations.switching.switch import port_bound, published_plan, switch_of
from solver.switch_document import gpu_names
from tests.expert_instances import expert_instance
from tests.oracles.switch import SwitchOracle
from tests.small_instances import random_instance
from tests.switch_cases import cluster, machines, switches, tiny_model, zoned_instance
from tests.unlike_degrees import unlike_instance

KINDS: tuple[Kind, ...] = ("parameters", "gradients")


@pytest.mark.parametrize(
    "make", [random_instance, expert_instance, unlike_instance, zoned_instance]
)
@pytest.mark.parametrize("kind", KINDS)
def test_classes_bound_and_rule_are_those_of_the_oracle(
    make: Callable[[int], Instance], kind: Kind
) -> None:
    """ZeRO, experts, mixed GPUs, zones: the same bytes from and to the same GPUs."""
    instance = make(4)
    search = instance.search.but(zero=(0, 1, 3))
    for found in switches(instance.but(search=search), kind):
        ends, cluster_ = (found.before, found.after), found.cluster
        oracle, names = SwitchOracle(cluster_, found.workload), gpu_names(cluster_)
        before, after = (layout_of(cluster_, plan) for plan in ends)
        switch = switch_of(cluster_, found.workload, before, after, [kind])
        assert sorted(
            (need.owners, need.receivers, need.size_bytes) for need in oracle.needs(*ends, kind)
        ) == sorted(
            (*(tuple(names[gpu] for gpu in gpus) for gpus in (d.owners, d.receivers)), d.size_bytes)
            for d in switch.demands
        )
        rule_ns = switch.time_ns(published_plan(switch)) if switch.demands else 0
        assert (port_bound(switch).time_ns, rule_ns) == oracle.times_ns(*ends, kind)


def copies(num_layers: int, *gpus: tuple[int, int]) -> Plan:
    """A whole model on each of some GPUs: node, number."""
    one = Degrees(tp=1)
    none = Recomputed(way="none", blocks=0)
    groups = (Group(node=node, gpus=(gpu,)) for node, gpu in gpus)
    stages = (
        Stage(layers=(0, num_layers), group=group, degrees=one, recomputed=none) for group in groups
    )
    nodes = tuple(dict.fromkeys(node for node, _ in gpus))
    config = Configuration(
        degrees=(one,),
        dp=len(gpus),
        pp=1,
        micro_batch=1,
        schedule="1f1b",
        recompute=("none",),
        zero=0,
        nodes_used=(len(nodes),),
    )
    replicas = tuple(Replica(micro_batches=1, stages=(stage,)) for stage in stages)
    return Plan(config=config, node_order=nodes, replicas=replicas)


def times(cluster_: Cluster, model: Workload, ends: tuple[Plan, Plan], kind: Kind) -> list[int]:
    """Port bound and published rule of a switch, ns."""
    before, after = (layout_of(cluster_, plan) for plan in ends)
    switch = switch_of(cluster_, model, before, after, [kind])
    return [port_bound(switch).time_ns, switch.time_ns(published_plan(switch))]


def test_a_copy_enters_a_node_once_by_the_bound_and_twice_by_the_rule() -> None:
    """One owner, two needers on the other node, S bytes at 1 GB/s: at least S ns, by the rule 2 S.

    The owner's port, the links and each needer's port take one copy; the rule sends two.
    """
    model = tiny_model(0)
    own, num_layers = cluster(machines(2, 2, 1e9, 1e9)), len(model.layers)
    ends = copies(num_layers, (0, 0)), copies(num_layers, (1, 0), (1, 1))
    size = 2 * sum(one.parameters for one in model.layers)
    assert times(own, model, ends, "parameters") == [size, 2 * size]


def test_owners_share_what_they_send_by_how_fast_their_links_are() -> None:
    """S bytes from nodes with 1 and 3 GB/s to one with more: at least S / 4 ns."""
    model = tiny_model(0)
    fast = 1e11
    own = cluster(
        machines(1, 1, fast, 1e9, name="a"),
        machines(1, 1, fast, 3e9, name="b"),
        machines(1, 1, fast, fast, name="c"),
    )
    num_layers = len(model.layers)
    ends = copies(num_layers, (0, 0), (1, 0)), copies(num_layers, (2, 0))
    size = 2 * sum(one.parameters for one in model.layers)
    least_ns, rule_ns = times(own, model, ends, "parameters")
    assert least_ns == -(-size // 4)
    assert rule_ns > least_ns


def test_nothing_moves_to_the_same_plan() -> None:
    """Neither bytes nor start-up."""
    model = tiny_model(0)
    plan = copies(len(model.layers), (0, 0), (0, 1))
    for kind in KINDS:
        assert times(cluster(machines(2, 2)), model, (plan, plan), kind) == [0, 0]
