"""Policies of an instance: fleets of templates, the best plans of the nodes left, and costs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest

from formulations.errors import NoPlanError, PlannerError
from formulations.instance import Instance
from formulations.units import seconds
from solver.fleets.designs import designs_of, fleet_templates, generator_for, templates_document
from solver.fleets.fleet import start_fleet
from solver.fleets.recovery import Horizon
from solver.interrupt import Deadline
from solver.options import PolicyName, SolveOptions
from solver.replay.policies import (
    FleetPlanner,
    InstancePolicies,
    Planner,
    PolicyOptions,
    recovery_of_size,
)
from solver.replay.policy import Configuration
from solver.replay.trace import Event, Trace
from solver.result import Result, Status, Termination
from solver.search.driver import solve
from solver.templates.generate import TemplateOptions
from tests.conftest import present, stored_instance
from tests.hand_made import planless_result
from tests.recorded import Cases, recorded
from tests.small_instances import random_instance

#: In which copying layers counts nothing.
ENDLESS_NS = 10**24
FAST = Horizon(ENDLESS_NS)


def fleet_instance(seed: int) -> Instance:
    """Up to 3 + 2 nodes, on which two pipelines fit."""
    instance = random_instance(seed)
    return instance.with_nodes((3, 2)[: len(instance.cluster.groups)])


#: Two nodes of each of two types.
TWO_GROUPS = random_instance(4).with_nodes((2, 2))


def of_nodes(instance: Instance) -> frozenset[str]:
    return frozenset(instance.cluster.node_names)


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_bug_fleets_of_a_replay_are_those_of_templates(seed: int) -> None:
    """Of the same designs, stepping as the file says: the exchange was once counted twice.

    Every failure leads to a fleet on ready nodes, until no template fits; a horizon without end
    never has a longer step than a short one.
    """
    instance = fleet_instance(seed)
    planner = FleetPlanner(instance, 1)
    generator = generator_for(instance, TemplateOptions(), 1)
    assert templates_document(generator, 1).designs == planner.designs
    ready = list(instance.cluster.node_names)
    now: Configuration | None = planner.next(None, frozenset(ready), FAST)
    assert now is not None
    assert seconds(now.step_ns) == start_fleet(instance, planner.designs, 1).step_time_s
    assert len(now.pipelines) > 1
    assert now.nodes <= frozenset(ready)
    assert (now.pause_ns, now.loses_state) == (0, False)
    while now is not None and len(ready) > 1:
        now = replace(now, lost=now.lost | {ready.pop(0)})
        fast = planner.next(now, frozenset(ready), FAST)
        short = planner.next(now, frozenset(ready), Horizon(10**8, 0))
        assert (fast is None) == (short is None)
        if fast is not None and short is not None:
            assert fast.nodes <= frozenset(ready)
            assert fast.step_ns <= short.step_ns
        now = fast


def test_bug_first_fleet_of_templates_is_that_of_a_replay() -> None:
    """Two pipelines of three nodes, where six of one take over 30 % longer.

    Whatever other pipelines up to all nodes but one there are, none makes a faster fleet.
    """
    # Six nodes of four A40, on which a step of GPT-2 is little beside the exchange
    instance = stored_instance("slow_links")
    generator, planner = generator_for(instance, TemplateOptions(), 1), FleetPlanner(instance, 1)
    fleet = start_fleet(instance, planner.designs, 1)
    assert [len(pipeline.nodes) for pipeline in fleet.pipelines] == [3, 3]
    first = present(planner.next(None, of_nodes(instance), FAST))
    assert seconds(first.step_ns) == fleet.step_time_s
    every = designs_of(fleet_templates(generator, range(1, 6)))
    assert start_fleet(instance, every, 1).step_time_s == fleet.step_time_s
    single = [design for design in every if design.template.num_nodes == 1]
    assert start_fleet(instance, single, 1).step_time_s > 1.3 * fleet.step_time_s


def test_node_that_is_back_holds_nothing() -> None:
    """All nodes fail and are back: every layer is lost, unless a pipeline has survived.

    With as many faults as nodes there is no fleet to begin with.
    """
    instance = fleet_instance(0)
    planner, names = FleetPlanner(instance, 1), of_nodes(instance)
    first = present(planner.next(None, names, FAST))
    whole = {instance.cluster.node_names[i] for i in first.pipelines[0].nodes}
    assert present(planner.next(replace(first, lost=names), names, FAST)).loses_state
    assert not present(planner.next(replace(first, lost=names - whole), names, FAST)).loses_state
    with pytest.raises(NoPlanError, match=r"allowed: at most . faults"):
        FleetPlanner(instance, 3)
    with pytest.raises(PlannerError, match="allowed: 0 to 2, as there are 3 nodes"):
        _ = InstancePolicies(instance, PolicyOptions(faults=3), None).fleets
    assert InstancePolicies(instance, PolicyOptions(faults=2), None).fleets.faults == 2


@recorded("policies")
def test_configurations_of_all_policies_are_the_recorded_ones() -> Cases:
    """First on all nodes, then without one; rules of models of 0.1 to 9 billion parameters.

    Restarts may split optimizer states; redundancy takes 4/3 of the step, and the fleets may not.
    """
    for name in get_args(PolicyName):
        for seed in (0, 4):
            instance = fleet_instance(seed)
            trace = Trace(instance.cluster.node_names, (Event(10**9, "fast-0", "fail"),), 10**10)
            pause_ns, horizon_ns = (7, 10**6) if seed else (None, None)
            options = PolicyOptions(pause_ns=pause_ns, horizon_ns=horizon_ns)
            policies = InstancePolicies(instance, options, None)
            policy, names = policies.of(name, trace), of_nodes(instance)
            now, told = None, []
            for ready in (names, names - {"fast-0"}):
                now = policy.reconfigure(now, ready)
                told.append(now and [sorted(now.nodes), now.step_ns, now.pause_ns])
            rest = [policies.summary, policy.samples_per_step, *policy.sources]
            yield f"{name} {seed} {pause_ns}", [*told, *rest]
        for billions in (0.1, 0.35, 2.6, 9):
            pause_ns, rules, source = recovery_of_size(name, int(billions * 1e9), "background")
            saved = rules.checkpoints and [rules.checkpoints.every_steps, rules.checkpoints.time_ns]
            rest = [rules.in_flight, rules.node_ready_ns, rules.slowdown_percent]
            yield f"{name} {billions}", [pause_ns, saved, *rest, rules.fatal_pause_ns, source]


def test_every_number_of_nodes_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of one group are interchangeable; a step is that of the best plan for those left.

    No plan found in time is not the same as that there is none.
    """
    instance, asked = TWO_GROUPS, list[Sequence[int]]()

    def counting(problem: Instance, options: SolveOptions, _: None) -> Result:
        asked.append([group.nodes for group in problem.cluster.groups])
        return solve(problem, options)

    monkeypatch.setattr("solver.replay.policies.solve", counting)
    planner, names = Planner(instance, SolveOptions(), None, Deadline(None)), of_nodes(instance)
    plans = [planner.plan(names - {node}) for node in instance.cluster.node_names]
    assert asked == [[1, 2], [2, 1]]
    assert planner.summary == "2 plans, all proved to be the best"
    assert planner.plan(frozenset()) is None
    nodes, step_ns = present(plans[-1])
    assert step_ns == solve(instance.with_nodes((2, 1))).step_time_ns
    assert nodes <= names - {instance.cluster.node_names[-1]}
    gaps = {
        i: replace(result, status=Status.FEASIBLE, bound=result.objective * (1 - 0.1 * i))
        for i, result in enumerate(planner.results.values(), 1)
        if result.objective
    }
    planner.results.update({(i,): result for i, result in gaps.items()})
    assert planner.summary == "4 plans, 2 proved to be the best, largest gap 20.00%"
    unknown = planless_result(Status.UNKNOWN, Termination.TIME_LIMIT)
    monkeypatch.setattr("solver.replay.policies.solve", lambda *_: unknown)
    with pytest.raises(PlannerError, match=r"no plan found for 1 .*raise --time-limit"):
        planner.plan(frozenset(instance.cluster.node_names[:1]))
