"""What moves, beside an oracle that goes rank by rank; the port bound and the published rule."""

from collections.abc import Callable
from dataclasses import astuple, replace
from typing import get_args

import pytest

from formulations.instance import Instance
from formulations.switching.shards import Kind, layout_of
from formulations.switching.switch import Sending, Volumes, port_bound, published_plan, switch_of
from solver.report.switch import gpu_names
from tests.oracles.switch import needs
from tests.recorded import as_recorded
from tests.small_instances import expert_instance, random_instance
from tests.stage_degrees import unlike_instance
from tests.switch_cases import (
    SIZE,
    cluster,
    machines,
    switches,
    tiny_switch,
    whole_switch,
    zoned_instance,
)


@pytest.mark.parametrize(
    "make", [random_instance, expert_instance, unlike_instance, zoned_instance]
)
@pytest.mark.parametrize("kind", get_args(Kind))
def test_what_is_demanded_is_what_the_oracle_says(
    make: Callable[[int], Instance], kind: Kind
) -> None:
    """ZeRO, experts, mixed GPUs, zones: the same bytes from and to the same GPUs."""
    for document in switches(make(4).but(search={"zero": (0, 1, 3)}), kind, most=2):
        ends, own, workload = (document.before, document.after), document.cluster, document.workload
        names, (before, after) = gpu_names(own), (layout_of(own, plan) for plan in ends)
        switch = switch_of(own, workload, before, after, [kind])
        assert sorted(needs(own, workload, *ends, kind)) == sorted(
            (*(tuple(names[gpu] for gpu in gpus) for gpus in (d.owners, d.receivers)), d.size_bytes)
            for d in switch.demands
        )


def test_bound_and_rule_are_the_recorded_ones() -> None:
    figures = {}
    for seed in range(0, 52, 2):
        switch = tiny_switch(seed)
        bound, rule = port_bound(switch), published_plan(switch)
        sizes = [[d.node, d.size_bytes, len(d.owners), d.is_free] for d in switch.demands]
        times = [bound.time_ns, switch.time_ns(rule), switch.latency_ns, len(rule)]
        figures[f"switch {seed}"] = [
            *times,
            *(list(astuple(line)) for line in bound.channels),
            sizes,
        ]
    as_recorded("switching", figures)


def test_a_sending_by_way_of_a_gpu() -> None:
    """S bytes to both GPUs of another node at 1 GB/s: twice over the links, or once and on."""
    switch = whole_switch(cluster(machines(2, 2, 1e9, 1e9)), [0], [2, 3])
    [demand], way = switch.demands, Sending(0, 0, SIZE, 0, 2, (2, 3))
    assert list(way.hops()) == [(0, 2), (2, 3)]
    assert [switch.time_ns([sending]) for sending in (demand.direct(), way)] == [2 * SIZE, SIZE]
    volumes = Volumes(0, 0, SIZE), Volumes(2, SIZE, 0, 0, SIZE), Volumes(3, 0, 0, SIZE)
    assert switch.volumes([way]) == volumes


def test_the_rule_counts_classes_of_one_owner_first() -> None:
    """GPU 0 sends what it alone holds; so all that GPU 1 holds too comes from there."""
    switch = whole_switch(cluster(machines(1, 4)), [0, 1], [2])
    both, alone = switch.classes[0], replace(switch.classes[0], owners=(0,))
    sent = published_plan(replace(switch, classes=(both, alone)))
    assert {(sending.number, sending.source) for sending in sent} == {(0, 1), (1, 0)}
