"""Plans of lengths judged on steps drawn from the histogram."""

from dataclasses import replace

import pytest

from formulations.lengths.problem import Atom, Mixed, Replica, RowTime, Strategy, Switching
from formulations.lengths.tour import Group, Tour
from solver.lengths.ascending import ascending
from solver.lengths.judge import Judgement, Way, judge
from solver.report.lengths_text import judged_text
from tests.command_line import printed
from tests.mixed_lengths import random_mixed

SHORT = Strategy("short", (Replica(1, 1024, RowTime(0.0, 1.0, 0)),) * 2)
LONG = Strategy("long", (Replica(1, 8192, RowTime(0.0, 1.0, 0)),))


def two_strategies(switch_ns: int) -> Mixed:
    """One class of 100 sequences of 1 to 1,000 tokens, one of 4 of 1,001 to 8,000."""
    costs = ((0, switch_ns), (switch_ns, 0))
    atoms = (Atom(1000, 100), Atom(8000, 4))
    return Mixed(atoms, (SHORT, LONG), Switching(costs, costs))


@pytest.mark.parametrize("seed", range(12))
def test_clairvoyant_is_never_behind(seed: int) -> None:
    """Every step, the groups chosen for it are as good as any other; equal seeds judge alike."""
    mixed = random_mixed(seed)
    plan = ascending(mixed)
    if plan is None:
        pytest.skip("no step of this seed has all its switches")
    judged = judge(mixed, plan, 5, seed)
    for times in judged.times_ns.values():
        assert all(a <= b for a, b in zip(judged.times_ns["clairvoyant"], times, strict=True))
    assert judged == judge(mixed, plan, 5, seed)


def test_steps_by_hand() -> None:
    """At 1 ns a token, alone, `long` takes a step's tokens; short halves those of its own.

    Of 104 sequences about 100 come from the first class, about 50,000 tokens of 68,000.
    """
    mixed = two_strategies(switch_ns=10)
    plan = Tour(1, (Group(0, (0,)), Group(1, (1,))))
    judged = judge(mixed, plan, 50, seed=1)
    assert judged.times_ns["fastest"] == judged.times_ns["plan"]
    assert 0.5 < judged.mean_ns("plan") / judged.mean_ns("single") < 0.75
    assert judged.mean_ns("plan") < judged.percentile_95_ns("plan")


def test_switches_that_cost_more_than_they_bring() -> None:
    """With dear switches the clairvoyant stays with the single strategy, `fastest` does not."""
    mixed = two_strategies(switch_ns=10**9)
    plan = ascending(mixed)
    assert plan == Tour(1, (Group(1, (0, 1)),))
    judged = judge(mixed, plan, 10, seed=1)
    assert judged.times_ns["clairvoyant"] == judged.times_ns["single"] == judged.times_ns["plan"]
    assert judged.mean_ns("fastest") > 2 * 10**9


def test_drawn_steps_pay_for_visits_and_optimizer() -> None:
    """Every group takes a visit more, every step the optimizer; then one group is the best."""
    plain = two_strategies(switch_ns=10)
    once = tuple(replace(one, visit_ns=10**7, anchor_ns=10**9) for one in (SHORT, LONG))
    plan = Tour(1, (Group(0, (0,)), Group(1, (1,))))
    before = judge(plain, plan, 5, seed=1)
    after = judge(replace(plain, strategies=once), plan, 5, seed=1)
    ways: dict[Way, int] = {"plan": 2, "single": 1}
    for way, groups in ways.items():
        pairs = zip(after.times_ns[way], before.times_ns[way], strict=True)
        assert {a - b for a, b in pairs} == {groups * 10**7 + 10**9}
    assert after.times_ns["clairvoyant"] == after.times_ns["single"]


def test_a_group_without_a_sequence_is_left_out() -> None:
    """A step that draws nothing of the long class does not switch for it."""
    mixed = two_strategies(switch_ns=10**6)
    rare = Mixed((Atom(1000, 9), Atom(8000, 1)), mixed.strategies, mixed.switching)
    judged = judge(rare, Tour(0, (Group(0, (0,)), Group(1, (1,)))), 30, seed=3)
    assert min(judged.times_ns["plan"]) < 10**6 < max(judged.times_ns["plan"])


def test_bug_ctrl_c_lost_the_steps_judged() -> None:
    """It ends judging with the steps that were judged, and says how many of how many; not none."""
    mixed, plan = two_strategies(switch_ns=10), Tour(1, (Group(1, (0, 1)),))

    def interrupt(at: int) -> Judgement:
        def tell(done: int, total: int) -> None:
            if done == at:
                raise KeyboardInterrupt

        return judge(mixed, plan, 5, 1, tell)

    assert interrupt(3).times_ns["plan"] == judge(mixed, plan, 5, 1).times_ns["plan"][:3]
    assert "3 of 5 drawn steps" in printed(*judged_text(interrupt(3)))
    with pytest.raises(KeyboardInterrupt):
        interrupt(0)


def test_a_quicker_single_strategy_is_told() -> None:
    """With switches that cost more than they bring: by how much, and in how many of the steps."""
    mixed = two_strategies(switch_ns=10**5)
    for plan, told in (
        (Tour(1, (Group(0, (0,)), Group(1, (1,)))), True),
        (ascending(mixed), False),
    ):
        assert plan is not None
        lines = [one for one in judged_text(judge(mixed, plan, 4, seed=1)) if isinstance(one, str)]
        assert any("which is quicker in 4 of 4" in line for line in lines) == told
