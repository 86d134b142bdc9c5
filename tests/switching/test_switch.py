"""What moves, the port bound and the published rule, beside an oracle that goes rank by rank."""

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from formulations.instance import Instance
from formulations.switching.shards import Kind, layout_of
from formulations.switching.switch import Sending, port_bound, published_plan, switch_of
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


def test_a_sending_by_way_of_a_gpu() -> None:
    """S bytes to both GPUs of another node at 1 GB/s: twice over the links, or once and on."""
    switch = whole_switch(cluster(machines(2, 2, 1e9, 1e9)), [0], [2, 3])
    [demand], way = switch.demands, Sending(0, 0, SIZE, 0, 2, (2, 3))
    assert list(way.hops()) == [(0, 2), (2, 3)]
    assert [switch.time_ns([sending]) for sending in (demand.direct(), way)] == [2 * SIZE, SIZE]
    assert switch.volumes([way]) == {0: [0, SIZE, 0, 0], 2: [SIZE, 0, 0, SIZE], 3: [0, 0, SIZE, 0]}
    [single] = whole_switch(cluster(machines(2, 2)), [0], [2]).demands
    assert (demand.is_free, single.is_free) == (True, False)


def test_the_rule_counts_classes_of_one_owner_first() -> None:
    """GPU 0 sends what it alone holds; so all that GPU 1 holds too comes from there."""
    switch = whole_switch(cluster(machines(1, 4)), [0, 1], [2])
    both, alone = switch.classes[0], replace(switch.classes[0], owners=(0,))
    sent = published_plan(replace(switch, classes=(both, alone)))
    assert {(sending.number, sending.source) for sending in sent} == {(0, 1), (1, 0)}
