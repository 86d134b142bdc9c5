"""Step times of an instance by the nodes that are left, and the costs of recovery."""

from collections.abc import Sequence

import pytest

from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.instance.machines import ZoneLink
from formulations.instance.preemption import costs_of_size
from solver.options import SolveOptions
from solver.replay.policies import (
    Planner,
    instance_with,
    planned_policy,
    recovery_of_size,
)
from solver.replay.policy import Checkpoints
from solver.result import Result, Status, Termination
from solver.search.driver import solve
from tests.hand_made import planless_result
from tests.small_instances import random_instance


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
