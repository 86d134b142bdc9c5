"""Recovery: never without a plan while one exists, and as good as any on small clusters."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations.fleet import Pipeline, holdings
from formulations.instance import Cluster
from formulations.pipelines import PipelineKind
from formulations.template import Template
from formulations.transition import Copy, Links, missing
from solver.fleets import recovery
from solver.fleets.node_assignment import NodeAssigner, Situation, chosen_sources
from solver.fleets.recovery import Horizon, Recovery, RecoveryError, recover
from solver.interrupt import NoTimeError, TimeUp
from tests.random_fleets import LAYERS, cluster, fleet_of, random_template

HOUR = Horizon(3600 * 10**9)


class Case:
    """Templates cut at random and what they are worth; sizes of the first group, or mixed."""

    def __init__(self, seed: int, counts: list[tuple[int, ...]], machines: Cluster) -> None:
        rng = random.Random(seed)
        self.cluster = machines
        self.templates = [
            random_template(
                rng,
                LAYERS,
                tuple(j for j, count in enumerate(own) for _ in range(count)),
                [2] * len(own),
            )
            for own in counts
        ]
        self.kinds = []
        for own in counts:
            each_ns = rng.randint(4, 9) * 10**9 // (2 * sum(own))
            gradients_ns = rng.randint(1, 5) * 10**9
            self.kinds.append(
                PipelineKind(
                    own,
                    [each_ns * m + 10**8 for m in range(1, 13)],
                    [gradients_ns * (x - 1) // x for x in range(1, 13)],
                )
            )
        self.layer_bytes = tuple(rng.randint(1, 9) * 10**9 for _ in range(LAYERS))

    def situation(self, old: list[Pipeline], ready: list[int]) -> Situation:
        """What is left when `ready` nodes are."""
        return Situation(
            Links(self.cluster),
            self.cluster.node_groups,
            tuple(old),
            tuple(ready),
            self.layer_bytes,
        )

    def recover(
        self, old: list[Pipeline], ready: list[int], faults: int, horizon: Horizon = HOUR
    ) -> Recovery:
        """The next fleet for 12 micro-batches."""
        situation = self.situation(old, ready)
        return recover(situation, self.templates, self.kinds, faults, 12, horizon)


def check(case: Case, old: list[Pipeline], ready: list[int], found: Recovery) -> None:
    """Nodes are ready, of the right group and in one pipeline; sources hold what they send."""
    groups = case.cluster.node_groups
    used = [node for pipeline in found.pipelines for node in pipeline.nodes]
    assert len(used) == len(set(used))
    assert set(used) <= set(ready)
    for pipeline in found.pipelines:
        assert tuple(groups[node] for node in pipeline.nodes) == pipeline.template.node_groups
        assert pipeline.template in case.templates
    assert sum(pipeline.micro_batches for pipeline in found.pipelines) == 12
    assert len(found.pipelines) > found.faults
    held = {node: layers for node, layers in holdings(old).items() if node in ready}
    wanted = set(missing(held, found.pipelines))
    assert {(copy.target, copy.layer) for copy in found.assignment.copies} == wanted
    assert len(found.assignment.copies) == len(wanted)
    living = {layer for layers in held.values() for layer in layers}
    for copy in found.assignment.copies:
        assert (copy.source is None) == (copy.layer not in living)
        assert copy.source is None or copy.layer in held[copy.source]
    time_ns = Links(case.cluster).transfer_ns(found.assignment.copies, case.layer_bytes)
    assert found.assignment.transfer_ns == time_ns


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_any_sequence_of_failures_yields_a_plan(data: st.DataObject) -> None:
    """Nodes are lost and join one by one, down to the smallest template: there always is a fleet.

    With at most f losses since the last recovery every layer has a living source.
    """
    least = data.draw(st.integers(1, 3), label="n0")
    others = data.draw(st.integers(0, 3), label="nodes of the second group")
    machines = cluster(7, others)
    counts: list[tuple[int, ...]] = [(n,) for n in range(least, 6)]
    if others:
        counts = [(*own, 0) for own in counts] + [(0, least), (1, least)]
    case = Case(data.draw(st.integers(0, 10**6), label="seed"), counts, machines)
    ready = list(range(7 + others))
    faults = data.draw(st.integers(0, 2), label="faults")
    found = case.recover([], ready, faults)
    check(case, [], ready, found)
    while len([node for node in ready if node < 7]) > least:
        old = list(found.pipelines)
        lost = data.draw(st.sets(st.sampled_from(ready), min_size=1, max_size=2), label="lost")
        away = sorted(set(range(7 + others)) - set(ready))
        ready = [node for node in ready if node not in lost]
        joined = data.draw(st.integers(0, min(1, len(away))), label="nodes that join")
        ready = sorted([*ready, *away[:joined]])
        if len([node for node in ready if node < 7]) < least:
            break
        survivable = len(lost) <= found.faults
        found = case.recover(old, ready, faults)
        check(case, old, ready, found)
        if survivable:
            assert all(copy.source is not None for copy in found.assignment.copies)


def test_below_the_smallest_template_there_is_no_plan() -> None:
    """Two nodes are left, and templates start at three."""
    case = Case(1, [(3,), (4,)], cluster(7))
    with pytest.raises(RecoveryError, match=r"nodes: 2 left, .* allowed: 3 nodes or more"):
        case.recover([], [0, 1], 1)


def test_fewer_faults_where_nodes_are_short() -> None:
    """Six nodes survive one failure as two pipelines of three, five none."""
    case = Case(1, [(3,), (4,), (5,)], cluster(7))
    assert case.recover([], list(range(6)), 1).faults == 1
    assert case.recover([], list(range(5)), 1).faults == 0


def all_fleets(case: Case, ready: list[int], faults: int) -> Iterator[list[int]]:
    """Kinds of the pipelines of every fleet that fits the nodes."""
    groups = [case.cluster.node_groups[node] for node in ready]
    for pipelines in range(faults + 1, len(ready) + 1):
        for chosen in combinations_with_replacement(range(len(case.kinds)), pipelines):
            needed = [j for i in chosen for j in case.templates[i].node_groups]
            if all(needed.count(j) <= groups.count(j) for j in set(needed)):
                yield list(chosen)


def least_step(case: Case, chosen: list[int]) -> int:
    """Least step of these kinds, over all shares: the longest, and the longest exchange."""
    exchange_ns = max(case.kinds[i].exchange_ns(len(chosen)) for i in chosen)
    return exchange_ns + min(
        max(case.kinds[i].times_ns[m - 1] for i, m in zip(chosen, shares, strict=True))
        for shares in product(range(1, 13), repeat=len(chosen))
        if sum(shares) == 12
    )


def least_transfer(case: Case, old: list[Pipeline], ready: list[int], chosen: list[int]) -> int:
    """Least transfer time over all ways to seat nodes and to choose sources."""
    held = {node: layers for node, layers in holdings(old).items() if node in ready}
    templates = [case.templates[i] for i in chosen]
    links, groups = Links(case.cluster), case.cluster.node_groups
    needed = [group for template in templates for group in template.node_groups]
    best: int | None = None
    for nodes in permutations(ready, len(needed)):
        if any(groups[node] != group for node, group in zip(nodes, needed, strict=True)):
            continue
        at = iter(nodes)
        fleet = [Pipeline(t, tuple(next(at) for _ in t.node_groups), 1) for t in templates]
        options = [
            [Copy(layer, source, node) for source in held if layer in held[source]]
            or [Copy(layer, None, node)]
            for node, layer in missing(held, fleet)
        ]
        for copies in product(*options):
            time_ns = links.transfer_ns(copies, case.layer_bytes)
            best = time_ns if best is None else min(best, time_ns)
    assert best is not None
    return best


@pytest.mark.parametrize("looks", range(5))
def test_out_of_time_the_best_so_far_has_a_bound(
    looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many fleets were seated; before the first one nothing is known."""
    case = Case(3, [(1,), (2,), (3,)], cluster(4))
    old = [replace(one, micro_batches=4) for one in fleet_of(case.templates[:2])]
    horizon = Horizon(20 * 10**9, restart_ns=10**9)
    whole = case.recover(old, [0, 2, 3], 0, horizon)
    left = iter(range(looks))

    def assigner(situation: Situation, templates: Sequence[Template]) -> NodeAssigner:
        if next(left, None) is None:
            raise TimeUp
        return NodeAssigner(situation, templates)

    monkeypatch.setattr(recovery, "NodeAssigner", assigner)
    if not looks:
        with pytest.raises(NoTimeError, match="raise --time-limit"):
            case.recover(old, [0, 2, 3], 0, horizon)
        return
    found = case.recover(old, [0, 2, 3], 0, horizon)
    assert found.steps <= whole.steps <= whole.bound <= found.bound


@pytest.mark.parametrize("seed", range(12))
def test_no_fleet_trains_more_than_the_bound(seed: int) -> None:
    """Every fleet, assignment and choice of sources: the result is among them, the bound above all.

    The horizon is short, so that moving little counts as much as fast steps.
    """
    rng = random.Random(seed)
    case = Case(seed, [(1,), (2,), (3,)], cluster(4))
    old = [replace(one, micro_batches=4) for one in fleet_of(case.templates[:2])]
    ready = sorted(rng.sample(range(4), 3))
    horizon = Horizon(rng.choice([20, 60]) * 10**9, restart_ns=10**9)
    found = case.recover(old, ready, 0, horizon)
    check(case, old, ready, found)
    best = max(
        horizon.steps(least_step(case, chosen), least_transfer(case, old, ready, chosen))
        for chosen in all_fleets(case, ready, 0)
    )
    assert found.steps <= best <= found.bound
    if found.gap == 0:
        assert found.steps == best


def test_a_short_horizon_moves_less() -> None:
    """Two pipelines of two nodes, 12 micro-batches; node 3 is lost.

    One of three nodes steps in half the time of a pair, but has layers copied. Within an hour it
    trains more; within the seconds that the copies take, the pair that is whole does.
    """
    case = Case(5, [(2,), (3,)], cluster(4))
    case.kinds = [
        PipelineKind((2,), [10**8 * m for m in range(1, 13)]),
        PipelineKind((3,), [5 * 10**7 * m for m in range(1, 13)]),
    ]
    old = fleet_of([case.templates[0]] * 2)
    slow, fast = (case.recover(old, [0, 1, 2], 0, Horizon(t * 10**9)) for t in (2, 3600))
    assert [one.template.num_nodes for one in fast.pipelines] == [3]
    assert [one.template.num_nodes for one in slow.pipelines] == [2]
    assert slow.assignment.copies == ()
    assert slow.pipelines[0].nodes == (0, 1)
    assert slow.gap == fast.gap == 0


def test_bug_templates_without_room_for_a_micro_batch() -> None:
    """A template that fits no micro-batch is never started, also beside pipelines that are whole.

    Three pairs, one loses a node: the single that is left has no template of one node.
    """
    case = Case(5, [(1,), (2,)], cluster(6))
    case.kinds[0] = PipelineKind((1,), [])
    found = case.recover(fleet_of([case.templates[1]] * 3), [0, 1, 2, 3, 4], 1)
    assert [one.template.num_nodes for one in found.pipelines] == [2, 2]


def test_bug_a_fleet_that_is_whole_may_go_on_without_a_restart() -> None:
    """Two nodes join a pair: two pairs step in half the time, but 500 of 600 s go to the restart.

    12 micro-batches on a pair take 1.2 s: 500 steps in 600 s without a pause, against 166.7 in the
    100 s left. With a restart of 200 s it is 666.7 steps with two pairs, and they are formed.
    """
    case = Case(5, [(2,)], cluster(4))
    case.kinds = [PipelineKind((2,), [10**8 * m for m in range(1, 13)])]
    case.layer_bytes = (1,) * LAYERS
    old = [replace(one, micro_batches=12) for one in fleet_of(case.templates)]
    stays, moves = (
        case.recover(old, [0, 1, 2, 3], 0, Horizon(600 * 10**9, s * 10**9)) for s in (500, 200)
    )
    assert stays.goes_on
    assert stays.steps == stays.bound == 500
    assert (stays.pipelines, stays.assignment.copies) == (tuple(old), ())
    assert not moves.goes_on
    assert len(moves.pipelines) == 2
    assert float(moves.steps) == pytest.approx(400 / 0.6)


def test_nothing_moves_without_a_failure() -> None:
    """The same nodes and templates: all stay where they are."""
    case = Case(7, [(2,), (3,)], cluster(7))
    first = case.recover([], list(range(7)), 1)
    again = case.recover(list(first.pipelines), list(range(7)), 1)
    assert again.assignment.copies == ()
    assert {one.nodes for one in again.pipelines} == {one.nodes for one in first.pipelines}


def test_sources_share_the_work() -> None:
    """Nodes 0 and 1 hold layer 0, 2 and 3 lack it: each sends one, in a second."""
    links = Links(cluster(4))
    copies = chosen_sources(links, {0: range(1), 1: range(1)}, [(2, 0), (3, 0)], [10**9])
    assert {copy.source for copy in copies} == {0, 1}


def test_one_source_serves_a_node_where_two_would_not_be_faster() -> None:
    """Node 2 receives layers 0 and 1 in two seconds, from whomever."""
    links = Links(cluster(3))
    held = {0: range(2), 1: range(2)}
    copies = chosen_sources(links, held, [(2, 0), (2, 1)], [10**9, 10**9])
    assert [copy.source for copy in copies] == [0, 0]


def test_steps_within_a_horizon() -> None:
    """An hour less 100 s is 3500 s: 700 steps of 5 s; recovery beyond the horizon trains none."""
    horizon = Horizon(3600 * 10**9, restart_ns=40 * 10**9)
    assert horizon.steps(5 * 10**9, 60 * 10**9) == Fraction(700)
    assert horizon.steps(5 * 10**9, 4000 * 10**9) == 0
