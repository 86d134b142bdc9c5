"""Recovery: never without a plan while one exists, and as good as any on small clusters."""

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations.errors import NoPlanError
from formulations.fleet import Pipeline, Template, holdings
from formulations.instance import Cluster
from formulations.pipelines import PipelineKind
from formulations.transition import Copy, Links, missing
from solver.fleets import recovery
from solver.fleets.node_assignment import NodeAssigner, Situation
from solver.fleets.recovery import Horizon, Recovery, recover
from solver.interrupt import NoTimeError, TimeUp
from tests.recorded import Cases, recorded
from tests.template_cases import HOUR, LAYERS, cluster, fleet_of, random_template


class Case:
    """Templates cut at random and what they are worth; sizes of the first group, or mixed."""

    def __init__(self, seed: int, counts: list[tuple[int, ...]], machines: Cluster) -> None:
        rng = random.Random(seed)
        self.links, self.groups = Links(machines), machines.node_groups
        mixes = [[j for j, n in enumerate(own) for _ in range(n)] for own in counts]
        self.templates = [random_template(rng, LAYERS, tuple(mix), [2] * 2) for mix in mixes]
        self.kinds = []
        for own in counts:
            each_ns = rng.randint(4, 9) * 10**9 // (2 * sum(own))
            gradients_ns = rng.randint(1, 5) * 10**9
            times_ns = [each_ns * m + 10**8 for m in range(1, 13)]
            exchanges_ns = [gradients_ns * (x - 1) // x for x in range(1, 13)]
            self.kinds.append(PipelineKind(own, times_ns, exchanges_ns))
        self.layer_bytes = tuple(rng.randint(1, 9) * 10**9 for _ in range(LAYERS))

    def recover(
        self, old: Sequence[Pipeline], ready: Sequence[int], faults: int, horizon: Horizon = HOUR
    ) -> Recovery:
        """The next fleet for 12 micro-batches, whose nodes are ready, and sources hold layers."""
        situation = Situation(self.links, self.groups, tuple(old), tuple(ready), self.layer_bytes)
        after = recover(situation, self.templates, self.kinds, faults, 12, horizon)
        used = [node for pipeline in after.pipelines for node in pipeline.nodes]
        assert len(used) == len(set(used))
        assert set(used) <= set(ready)
        for pipeline in after.pipelines:
            assert tuple(self.groups[n] for n in pipeline.nodes) == pipeline.template.node_groups
            assert pipeline.template in self.templates
        assert sum(pipeline.micro_batches for pipeline in after.pipelines) == 12
        assert len(after.pipelines) > after.faults
        held = {node: layers for node, layers in holdings(old).items() if node in ready}
        copies = after.assignment.copies
        wanted = sorted(missing(held, after.pipelines))
        assert sorted((copy.target, copy.layer) for copy in copies) == wanted
        living = {layer for layers in held.values() for layer in layers}
        for copy in copies:
            assert (copy.source is None) == (copy.layer not in living)
            assert copy.source is None or copy.layer in held[copy.source]
        assert after.assignment.transfer_ns == self.links.transfer_ns(copies, self.layer_bytes)
        return after


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_any_sequence_of_failures_yields_a_plan(data: st.DataObject) -> None:
    """Nodes are lost and join one by one, down to the smallest template: there always is a fleet.

    With at most f losses since the last recovery every layer has a living source.
    """
    least, others = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 3))
    counts: list[tuple[int, ...]] = [(n,) for n in range(least, 6)]
    if others:
        counts = [(*own, 0) for own in counts] + [(0, least), (1, least)]
    case = Case(data.draw(st.integers(0, 10**6), label="seed"), counts, cluster(7, others))
    ready, faults = list(range(7 + others)), data.draw(st.integers(0, 2), label="faults")
    fleet = case.recover([], ready, faults)
    while True:
        lost = data.draw(st.sets(st.sampled_from(ready), min_size=1, max_size=2), label="lost")
        away = sorted(set(range(7 + others)) - set(ready))
        joined = data.draw(st.integers(0, min(1, len(away))), label="nodes that join")
        ready = sorted([*(node for node in ready if node not in lost), *away[:joined]])
        if len([node for node in ready if node < 7]) < least:
            break
        survivable = len(lost) <= fleet.faults
        fleet = case.recover(fleet.pipelines, ready, faults)
        assert not survivable or all(copy.source is not None for copy in fleet.assignment.copies)


def best_steps(
    case: Case, old: Sequence[Pipeline], ready: Sequence[int], horizon: Horizon
) -> Fraction:
    """Most steps of every fleet, over all shares, ways to seat nodes and choices of sources."""
    held = {node: layers for node, layers in holdings(old).items() if node in ready}
    best = Fraction(0)
    for count in range(1, len(ready) + 1):
        for chosen in combinations_with_replacement(range(len(case.kinds)), count):
            templates = [case.templates[i] for i in chosen]
            exchange_ns = max(case.kinds[i].exchange_ns(count) for i in chosen)
            steps_ns = (
                max(case.kinds[i].times_ns[m - 1] for i, m in zip(chosen, shares, strict=True))
                for shares in product(range(1, 13), repeat=count)
                if sum(shares) == 12
            )
            step_ns, transfers_ns = exchange_ns + min(steps_ns), list[int]()
            for nodes in permutations(ready, sum(t.num_nodes for t in templates)):
                at = iter(nodes)
                fleet = [Pipeline(t, tuple(next(at) for _ in t.node_groups), 1) for t in templates]
                sources = [
                    [Copy(layer, source, node) for source in held if layer in held[source]]
                    or [Copy(layer, None, node)]
                    for node, layer in missing(held, fleet)
                ]
                transfers_ns += (
                    case.links.transfer_ns(c, case.layer_bytes) for c in product(*sources)
                )
            if transfers_ns:
                best = max(best, horizon.steps(step_ns, min(transfers_ns)))
    return best


def small_case(seed: int) -> tuple[Case, list[Pipeline], list[int], Horizon]:
    """Three of four equal nodes, on three of which a pipeline of one and one of two run.

    The horizon is short, so that moving little counts as much as fast steps.
    """
    rng, case = random.Random(seed), Case(seed, [(1,), (2,), (3,)], cluster(4))
    old = [replace(one, micro_batches=4) for one in fleet_of(case.templates[:2])]
    ready = sorted(rng.sample(range(4), 3))
    return case, old, ready, Horizon(rng.choice([20, 60]) * 10**9, restart_ns=10**9)


@recorded("recovery")
def test_no_fleet_trains_more_than_the_bound() -> Cases:
    for seed in range(12):
        case, old, ready, horizon = small_case(seed)
        after = case.recover(old, ready, 0, horizon)
        best = best_steps(case, old, ready, horizon)
        assert after.steps <= best <= after.bound
        assert after.bound > after.steps or after.steps == best
        seats = [[*one.nodes, one.micro_batches] for one in after.pipelines]
        rest = [after.goes_on, after.step_ns, after.assignment.transfer_ns]
        yield str(seed), [float(after.steps), float(after.bound), *rest, *seats]


@pytest.mark.parametrize("work", [0, 300_000])
@recorded("recovery")
def test_recoveries_of_larger_fleets_are_the_recorded_ones(
    work: int, monkeypatch: pytest.MonkeyPatch
) -> Cases:
    """Two nodes of up to ten lost, one back; however many fleets are given nodes."""
    monkeypatch.setattr(recovery, "ASSIGNMENT_WORK", work)
    for seed in range(6):
        case = Case(seed, [(1, 0), (2, 0), (3, 0), (1, 1), (0, 2)], cluster(7, 3))
        old, horizon = case.recover([], range(1, 10), 1), Horizon(30 * 10**9, 10**8)
        after = case.recover(old.pipelines, [0, 1, *range(4 + seed % 3, 10)], 1, horizon)
        seats = [[*one.nodes, one.micro_batches] for one in after.pipelines]
        rest = [after.goes_on, after.faults, after.step_ns, after.assignment.transfer_ns]
        yield f"{seed} {work}", [float(after.steps), float(after.bound), *rest, *seats]


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_out_of_time_the_best_so_far_has_a_bound(
    looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many fleets were seated; before the first one nothing is known."""
    case, old, ready, horizon = small_case(3)
    complete, times = case.recover(old, ready, 0, horizon), iter(range(looks))

    def assigner(situation: Situation, templates: Sequence[Template]) -> NodeAssigner:
        if next(times, None) is None:
            raise TimeUp
        return NodeAssigner(situation, templates)

    monkeypatch.setattr(recovery, "NodeAssigner", assigner)
    if not looks:
        with pytest.raises(NoTimeError, match="raise --time-limit"):
            case.recover(old, ready, 0, horizon)
        return
    cut = case.recover(old, ready, 0, horizon)
    assert cut.steps <= complete.steps <= complete.bound <= cut.bound


def test_bug_templates_without_room_for_a_micro_batch() -> None:
    """A template that fits no micro-batch is never started, also beside pipelines that are whole.

    Three pairs, one loses a node: the single that is left has no template of one node.
    """
    case = Case(5, [(1,), (2,)], cluster(6))
    case.kinds[0] = PipelineKind((1,), [])
    after = case.recover(fleet_of([case.templates[1]] * 3), [0, 1, 2, 3, 4], 1)
    assert [one.template.num_nodes for one in after.pipelines] == [2, 2]
    few = Case(1, [(3,), (4,), (5,)], cluster(7))  # six nodes survive a failure, five none
    assert [few.recover([], range(n), 1).faults for n in (6, 5)] == [1, 0]
    with pytest.raises(NoPlanError, match=r"nodes: 2 left, .* allowed: 3 nodes or more"):
        few.recover([], [0, 1], 1)


def test_bug_a_fleet_that_is_whole_may_go_on_without_a_restart() -> None:
    """Two nodes join a pair: two pairs step in half the time, but 500 of 600 s go to the restart.

    12 micro-batches on a pair take 1.2 s: 500 steps in 600 s without a pause, against 166.7 in the
    100 s left. With a restart of 200 s it is 666.7 steps with two pairs, and they are formed.
    """
    case = Case(5, [(2,)], cluster(4))
    case.kinds[0] = PipelineKind((2,), [10**8 * m for m in range(1, 13)])
    case.layer_bytes = (1,) * LAYERS
    old = [replace(one, micro_batches=12) for one in fleet_of(case.templates)]
    stays, moves = (
        case.recover(old, range(4), 0, Horizon(600 * 10**9, s * 10**9)) for s in (500, 200)
    )
    assert stays.goes_on
    assert stays.steps == stays.bound == 500
    assert (stays.pipelines, stays.assignment.copies) == (tuple(old), ())
    assert (moves.goes_on, len(moves.pipelines)) == (False, 2)
    assert not case.recover(old, range(4), 1, Horizon(600 * 10**9, 500 * 10**9)).goes_on
    assert float(moves.steps) == pytest.approx(400 / 0.6)
