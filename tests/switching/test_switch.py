"""What moves, beside an oracle that goes rank by rank; the port bound and the published rule."""

from collections.abc import Callable
from dataclasses import astuple
from typing import get_args

import pytest

from formulations.instance import Instance
from formulations.switching.shards import Kind, layout_of
from formulations.switching.switch import port_bound, published_plan, switch_of
from solver.report.lengths import gpu_names
from tests.oracles.switch import needs
from tests.recorded import Cases, recorded
from tests.small_instances import expert_instance, random_instance
from tests.stage_degrees import unlike_instance
from tests.switch_cases import switches, tiny_switch, zoned_instance


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


@recorded("switching")
def test_bound_and_rule_are_the_recorded_ones() -> Cases:
    for seed in range(0, 52, 2):
        switch = tiny_switch(seed)
        bound, rule = port_bound(switch), published_plan(switch)
        sizes = [[d.node, d.size_bytes, len(d.owners), d.is_free] for d in switch.demands]
        times = [bound.time_ns, switch.time_ns(rule), switch.latency_ns, len(rule)]
        yield (f"switch {seed}", [*times, *(list(astuple(line)) for line in bound.channels), sizes])
