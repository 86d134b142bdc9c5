"""Policies that form fleets of templates: valid, as good as promised, honest about lost state."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.pipelines import InstantiationProblem
from formulations.units import seconds
from solver.fleets.designs import designs_of, fleet_templates, generator_for
from solver.fleets.fleet import start_fleet
from solver.fleets.instantiate import instantiate
from solver.fleets.recovery import Horizon, RecoveryError
from solver.fleets.template_document import templates_document
from solver.replay.policies import (
    FleetPlanner,
    InstancePolicies,
    PolicyName,
    PolicyOptions,
    designs_for,
    fleet_policy,
    instance_with,
    mean_interval_ns,
)
from solver.replay.trace import Event, Trace
from solver.templates.generate import NoTemplateError, TemplateOptions
from tests.small_instances import random_instance

#: In which copying layers counts nothing.
ENDLESS_NS = 10**24
FAST = Horizon(ENDLESS_NS)


def fleet_instances(count: int) -> list[Instance]:
    """Instances of up to 3 + 2 nodes on which two pipelines fit."""
    found = list[Instance]()
    for seed in range(200):
        instance = random_instance(seed)
        nodes = (3, 2)[: len(instance.cluster.groups)]
        larger = instance_with(instance, nodes)
        try:
            first = FleetPlanner(larger, 1).next(None, frozenset(larger.cluster.node_names), FAST)
        except (NoTemplateError, RecoveryError):
            continue
        assert first is not None
        found.append(larger)
        if len(found) == count:
            return found
    raise AssertionError("too few instances")


INSTANCES = fleet_instances(6)


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda one: one.name)
def test_bug_first_fleet_steps_as_its_file_says(instance: Instance) -> None:
    """Equal to the exact instantiation, which has the exchange of gradients; two pipelines.

    The exchange was once counted twice.
    """
    planner = FleetPlanner(instance, 1)
    names = frozenset(instance.cluster.node_names)
    found = planner.next(None, names, FAST)
    assert found is not None
    available = tuple(group.nodes for group in instance.cluster.groups)
    total = instance.workload.global_batch // planner.micro_batch
    problem = InstantiationProblem(planner.kinds, available, 1, total, all_nodes=False)
    exact = instantiate(problem)
    assert exact is not None
    assert found.step_ns == exact.step_ns(problem)
    stored = start_fleet(instance, planner.designs, 1)
    assert seconds(found.step_ns) == stored.step_time_s
    assert len(found.pipelines) > 1
    assert found.nodes <= names
    assert (found.pause_ns, found.loses_state) == (0, False)


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda one: one.name)
def test_every_failure_leads_to_a_fleet_on_ready_nodes(instance: Instance) -> None:
    """Until no template fits; a horizon without end never has a longer step than a short one."""
    planner = FleetPlanner(instance, 1)
    ready = list(instance.cluster.node_names)
    now = planner.next(None, frozenset(ready), FAST)
    while now is not None and len(ready) > 1:
        lost = ready.pop(0)
        now = replace(now, lost=now.lost | {lost})
        fast = planner.next(now, frozenset(ready), FAST)
        short = planner.next(now, frozenset(ready), Horizon(10**8, 0))
        assert (fast is None) == (short is None)
        if fast is not None and short is not None:
            assert fast.nodes <= frozenset(ready)
            assert fast.step_ns <= short.step_ns
        now = fast


def slow_links() -> Instance:
    """Six nodes of four A40, on which a step of GPT-2 is little beside the exchange."""
    text = """
    name: slow_links
    workload: {catalogue: gpt2, global_batch: 64}
    cluster:
      groups: [{name: a, gpu: A40, gpus_per_node: 4, nodes: 6, inter_node: 10 Gbit/s}]
    search: {tensor_parallel: 1, micro_batch: 1, recompute: none}
    """
    return parse_instance(text, "slow_links.yaml", Path())


def test_bug_first_fleet_of_templates_is_that_of_a_replay() -> None:
    """Two pipelines of three nodes, where six of one take over 30 % longer.

    Whatever other pipelines up to all nodes but one there are, none makes a faster fleet.
    """
    instance = slow_links()
    generator = generator_for(instance, TemplateOptions(), 1)
    document = templates_document(generator, 1)
    fleet = start_fleet(instance, document.designs, 1)
    assert [len(pipeline.nodes) for pipeline in fleet.pipelines] == [3, 3]
    assert document.designs == designs_for(instance, 1)
    ready = frozenset(instance.cluster.node_names)
    first = FleetPlanner(instance, 1).next(None, ready, Horizon(ENDLESS_NS, 0))
    assert first is not None
    assert seconds(first.step_ns) == fleet.step_time_s
    every = designs_of(fleet_templates(generator, range(1, 6)))
    assert start_fleet(instance, every, 1).step_time_s == fleet.step_time_s
    single = [design for design in every if design.template.num_nodes == 1]
    assert start_fleet(instance, single, 1).step_time_s > 1.3 * fleet.step_time_s


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda one: one.name)
def test_bug_templates_are_those_of_a_replay(instance: Instance) -> None:
    """Both form fleets of the same templates."""
    generator = generator_for(instance, TemplateOptions(), 1)
    assert templates_document(generator, 1).designs == designs_for(instance, 1)


def test_more_pipelines_than_fit_are_refused() -> None:
    """With as many faults as nodes there is no fleet to begin with."""
    instance = INSTANCES[0]
    nodes = len(instance.cluster.node_names)
    with pytest.raises(RecoveryError, match=r"allowed: at most . faults"):
        FleetPlanner(instance, nodes)


def test_node_that_is_back_holds_nothing() -> None:
    """All nodes fail and are back: every layer is lost, unless a pipeline has survived."""
    instance = INSTANCES[0]
    planner = FleetPlanner(instance, 1)
    names = frozenset(instance.cluster.node_names)
    first = planner.next(None, names, FAST)
    assert first is not None
    gone = planner.next(replace(first, lost=names), names, FAST)
    assert gone is not None
    assert gone.loses_state
    one_pipeline = {instance.cluster.node_names[i] for i in first.pipelines[0].nodes}
    left = planner.next(replace(first, lost=names - one_pipeline), names, FAST)
    assert left is not None
    assert not left.loses_state


def test_ours_leaves_a_node_that_does_not_pay_in_time() -> None:
    """With a long pause and a short horizon it stays with what it has; with an endless one not."""
    instance = INSTANCES[4]
    planner = FleetPlanner(instance, 1)
    names = frozenset(instance.cluster.node_names)
    start = planner.next(None, names - {"slow-0"}, FAST)
    best = planner.next(None, names, FAST)
    assert start is not None
    assert best is not None
    assert best.step_ns < start.step_ns
    ours = fleet_policy(planner, "lost", 10**12, 10**12)
    assert ours.reconfigure(start, names) == start
    eager = fleet_policy(planner, "lost", 10**12, ENDLESS_NS)
    found = eager.reconfigure(start, names)
    assert found is not None
    assert found.step_ns == best.step_ns
    assert found.pause_ns >= 10**12


def test_mean_interval_counts_the_end() -> None:
    """Two failures in 90 ns: every 30 ns."""
    events = (Event(10, "a", "fail"), Event(20, "a", "join"), Event(30, "b", "fail"))
    assert mean_interval_ns(Trace(("a", "b"), events, 90)) == 30


def test_policies_of_an_instance_share_plans() -> None:
    """Restarts may split optimizer states, redundancy and the fleets may not."""
    instance = INSTANCES[0]
    policies = InstancePolicies(instance, PolicyOptions(pause_ns=7), None)
    names = frozenset(instance.cluster.node_names)
    trace = Trace(tuple(names), (), 100)
    assert policies.summary is None
    for name in get_args(PolicyName):
        assert policies.of(name, trace).reconfigure(None, names) is not None
    assert policies.summary is not None
    assert "restart: 1 plans" in policies.summary
    assert "redundancy: 1 plans" in policies.summary
