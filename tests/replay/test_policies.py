"""Policies of an instance: fleets of templates, the best plans of the nodes left, and costs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.instance.machines import ZoneLink
from formulations.instance.preemption import costs_of_size
from formulations.pipelines import InstantiationProblem
from formulations.units import seconds
from solver.fleets.designs import designs_of, fleet_templates, generator_for
from solver.fleets.fleet import start_fleet
from solver.fleets.instantiate import instantiate
from solver.fleets.recovery import Horizon, RecoveryError
from solver.fleets.template_document import templates_document
from solver.options import SolveOptions
from solver.replay.policies import (
    FleetPlanner,
    InstancePolicies,
    Planner,
    PolicyName,
    PolicyOptions,
    fleet_policy,
    instance_with,
    mean_interval_ns,
    planned_policy,
    recovery_of_size,
)
from solver.replay.policy import Checkpoints
from solver.replay.trace import Event, Trace
from solver.result import Result, Status, Termination
from solver.search.driver import solve
from solver.templates.generate import NoTemplateError, TemplateOptions
from tests.hand_made import planless_result
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
    assert document.designs == FleetPlanner(instance, 1).designs
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
    assert templates_document(generator, 1).designs == FleetPlanner(instance, 1).designs


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


def two_groups() -> Instance:
    """Two nodes of each of two types."""
    for seed in range(50):
        instance = random_instance(seed)
        if len(instance.cluster.groups) == 2:
            twice = instance_with(instance, (2, 2))
            if solve(twice).plan is not None:
                return twice
    raise AssertionError("no such instance")


def test_step_time_is_that_of_the_best_plan_for_the_nodes_left() -> None:
    """Without one node of the second group: as if the instance had one fewer."""
    instance = two_groups()
    names = instance.cluster.node_names
    first, second = (group.nodes for group in instance.cluster.groups)
    found = Planner(instance, SolveOptions()).plan(frozenset(names) - {names[-2]})
    best = solve(instance_with(instance, (first, second - 1)))
    assert best.plan is None or found is not None
    if found is not None:
        nodes, step_ns = found
        assert step_ns == best.step_time_ns
        assert nodes <= frozenset(names) - {names[-2]}


def test_group_without_nodes_and_its_zone_are_left_out() -> None:
    """One zone is left, so that there is no link between zones."""
    instance = two_groups()
    groups = tuple(
        group.but(zone=zone)
        for group, zone in zip(instance.cluster.groups, ("east", "west"), strict=True)
    )
    link = ZoneLink(bandwidth_bytes_per_s=1e9, latency_s=1e-3)
    cluster = instance.cluster.but(groups=groups, zone_link=link)
    zoned = instance.but(cluster=cluster)
    assert instance_with(zoned, (1, 1)).cluster.zone_link == link
    left = instance_with(zoned, (0, 1)).cluster
    assert [(group.zone, group.nodes) for group in left.groups] == [("west", 1)]
    assert left.zone_link is None


def test_search_without_a_plan_or_a_proof_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan found in time is not the same as that there is none."""
    instance = two_groups()

    def unknown(problem: Instance, options: SolveOptions, _: None) -> Result:
        status, termination = Status.UNKNOWN, Termination.TIME_LIMIT
        return planless_result(status, termination)

    monkeypatch.setattr("solver.replay.policies.solve", unknown)
    with pytest.raises(PlannerError, match=r"no plan found for 1 .*raise --time-limit"):
        Planner(instance, SolveOptions()).plan(frozenset(instance.cluster.node_names[:1]))


def test_every_number_of_nodes_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of one group are interchangeable."""
    instance, asked = two_groups(), list[Sequence[int]]()

    def counting(problem: Instance, options: SolveOptions, _: None) -> Result:
        asked.append([group.nodes for group in problem.cluster.groups])
        return solve(problem, options)

    monkeypatch.setattr("solver.replay.policies.solve", counting)
    planner = Planner(instance, SolveOptions())
    names = frozenset(instance.cluster.node_names)
    for node in instance.cluster.node_names:
        planner.plan(names - {node})
    assert len(asked) == 2
    assert planner.summary == "2 plans, all proved to be the best"
    assert planner.plan(frozenset()) is None


def test_redundancy_pays_for_redundant_forward_passes() -> None:
    """4/3 of the step; the pause is the one given."""
    instance = two_groups()
    planner = Planner(instance, SolveOptions())
    names = frozenset(instance.cluster.node_names)
    plain = planned_policy(planner, "restart", "lost", 5).reconfigure(None, names)
    redundant = planned_policy(planner, "redundancy", "lost", 5).reconfigure(None, names)
    assert plain is not None
    assert redundant is not None
    assert redundant.step_ns == -(-plain.step_ns * 4 // 3)
    assert (plain.pause_ns, redundant.pause_ns) == (5, 5)


@pytest.mark.parametrize(
    ("parameters", "model", "factor"),
    [
        (1, "BERT-large", 1),
        (335_141_888, "BERT-large", 1),
        (335_141_889, "GPT-2", 1),
        (10**9, "GPT-3 2.7B", 1),
        (2 * 6_658_404_352, "GPT-3 6.7B", 2),
    ],
)
def test_costs_are_those_of_the_next_larger_model(
    parameters: int, model: str, factor: float
) -> None:
    """Above the largest one, in proportion to the size."""
    costs, scale = costs_of_size(parameters)
    assert (costs.model, scale) == (model, factor)


def test_published_costs_of_restarts() -> None:
    """Restart 515 s, checkpoint 50 s every 10 steps for 2.7 billion parameters."""
    pause_ns, recovery, source = recovery_of_size("restart", 2_600_000_000, "lost")
    assert pause_ns == 515 * 10**9
    assert recovery.checkpoints == Checkpoints(10, 50 * 10**9)
    assert "GPT-3 2.7B" in source
