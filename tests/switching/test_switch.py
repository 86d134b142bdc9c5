"""What moves, the port bound and the published rule, beside an oracle that goes rank by rank."""

from collections.abc import Callable
from typing import get_args

import pytest

from formulations.instance import Cluster, Instance
from formulations.switching.shards import Kind, layout_of
from formulations.switching.switch import port_bound, published_plan, switch_of
from solver.switch_document import gpu_names
from tests.expert_instances import expert_instance
from tests.oracles.switch import SwitchOracle
from tests.small_instances import random_instance
from tests.switch_cases import SIZE, cluster, machines, switches, whole_switch, zoned_instance
from tests.unlike_degrees import unlike_instance


@pytest.mark.parametrize(
    "make", [random_instance, expert_instance, unlike_instance, zoned_instance]
)
@pytest.mark.parametrize("kind", get_args(Kind))
def test_classes_bound_and_rule_are_those_of_the_oracle(
    make: Callable[[int], Instance], kind: Kind
) -> None:
    """ZeRO, experts, mixed GPUs, zones: the same bytes from and to the same GPUs."""
    instance = make(4)
    for document in switches(instance.but(search={"zero": (0, 1, 3)}), kind):
        ends, cluster_ = (document.before, document.after), document.cluster
        oracle, names = SwitchOracle(cluster_, document.workload), gpu_names(cluster_)
        before, after = (layout_of(cluster_, plan) for plan in ends)
        switch = switch_of(cluster_, document.workload, before, after, [kind])
        assert sorted(
            (need.owners, need.receivers, need.size_bytes) for need in oracle.needs(*ends, kind)
        ) == sorted(
            (*(tuple(names[gpu] for gpu in gpus) for gpus in (d.owners, d.receivers)), d.size_bytes)
            for d in switch.demands
        )
        rule_ns = switch.time_ns(published_plan(switch)) if switch.demands else 0
        assert (port_bound(switch).time_ns, rule_ns) == oracle.times_ns(*ends, kind)


def times(machines: Cluster, before: list[int], after: list[int]) -> tuple[int, int]:
    """Port bound and published rule of a switch, ns."""
    switch = whole_switch(machines, before, after)
    return port_bound(switch).time_ns, switch.time_ns(published_plan(switch))


def test_a_copy_enters_a_node_once_by_the_bound_and_twice_by_the_rule() -> None:
    """One owner, two needers on the other node, S bytes at 1 GB/s: at least S ns, by the rule 2 S.

    The owner's port, the links and each needer's port take one copy; the rule sends two. Nothing
    moves to the same plan, in no time.
    """
    two = cluster(machines(2, 2, 1e9, 1e9))
    assert times(two, [0], [2, 3]) == (SIZE, 2 * SIZE)
    assert times(two, [0, 1], [0, 1]) == (0, 0)


def test_owners_share_what_they_send_by_how_fast_their_links_are() -> None:
    """S bytes from nodes with 1 and 3 GB/s to one with more: at least S / 4 ns."""
    rates = {"a": 1e9, "b": 3e9, "c": 1e11}
    own = cluster(*(machines(1, 1, 1e11, rate, name=name) for name, rate in rates.items()))
    least_ns, rule_ns = times(own, [0, 1], [2])
    assert least_ns == -(-SIZE // 4)
    assert rule_ns > least_ns
