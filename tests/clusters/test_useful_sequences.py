"""Money per useful sequence: search, verifier and replay agree on it."""

import random
from functools import cache
from itertools import pairwise
from statistics import fmean, stdev

import pytest

import tests.oracles.preemption as preemption_oracle
from formulations.costs.renting import checkpoint_every_s, in_whole_steps, slowdown, terms_of
from formulations.instance import Objective
from formulations.instance.preemption import Preemption
from solver.options import Method, SolveOptions
from solver.plan_figures import build_document
from solver.replay.player import replay
from solver.replay.policy import Checkpoints, Configuration, Policy, Recovery
from solver.replay.trace import Event, Trace
from solver.result import Result
from solver.search.driver import solve
from solver.verify import verify_document
from tests.best_plans import check_verified, optima_ns
from tests.resealed import Changes, forged
from tests.seeds import one_each
from tests.spot_instances import rates_times, spot_instance

METHODS: tuple[Method, ...] = ("exact", "cpsat", "milp")


@cache
def planned() -> Result:
    """Of an instance whose best plan is on spot nodes that are taken back."""
    results = (solve(spot_instance(seed)) for seed in range(40))
    return next(
        one
        for one in results
        if one.plan and terms_of(one.instance, one.plan.config.nodes_used).preemptions_per_hour > 1
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", one_each(range(40), 20))
def test_all_methods_prove_the_least_money(seed: int, method: Method) -> None:
    """The least of step time times rent and slowdown over every config, order, split and share."""
    instance, options = spot_instance(seed), SolveOptions(method=method)
    values = [
        ns * terms_of(instance, config.nodes_used).useful_usd_per_hour
        for config, ns in optima_ns(instance).items()
    ]
    result = solve(instance, options)
    assert result.objective == min(values, default=None)
    check_verified(result, options)


@pytest.mark.parametrize("seed", one_each(range(30), 10))
def test_preemptions_cost_no_less_than_none(seed: int) -> None:
    """The least money does not fall as all nodes are taken back more often.

    At rate 0, and on spot for what nodes cost on demand, it is the cost per step.
    """
    instance = spot_instance(seed)
    found = [solve(rates_times(instance, f)).objective for f in (0.0, 1.0, 100.0)]
    known = [one for one in found if one is not None]
    assert len(known) in (0, len(found))
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(known))
    useful = rates_times(instance, 0.0)
    groups = tuple(
        group.but(price_usd_per_hour=(group.spot or group).price_usd_per_hour)
        for group in useful.cluster.groups
    )
    useful = useful.but(cluster={"groups": groups})
    a, b = (
        solve(useful.but(objective=Objective(minimize=objective)))
        for objective in ("cost_per_useful_sequence", "cost_per_step")
    )
    assert (a.objective, a.plan) == (b.objective, b.plan)


def test_replay_of_random_preemptions_agrees() -> None:
    """Of 12 runs with 300 preemptions each the mean is within 3.5 standard errors of the formula.

    Checkpoints after whole steps; another node joins at once, gets ready in 2/3 of the restart,
    then all pause.
    """
    result = planned()
    assert result.plan is not None
    assert result.step_time_ns is not None
    terms = terms_of(result.instance, result.plan.config.nodes_used)
    step_ns, preemption = result.step_time_ns, result.instance.preemption
    assert preemption is not None
    every, expected = in_whole_steps(preemption, terms.preemptions_per_s, step_ns / 1e9)
    assert expected == pytest.approx(terms.slowdown, rel=1e-3)
    ready_ns = int(preemption.restart_s * 1e9) * 2 // 3
    rules = Recovery("lost", Checkpoints(every, int(preemption.checkpoint_s * 1e9)), ready_ns)
    names = tuple("abcd")

    def all_nodes(_: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        return Configuration(ready, step_ns, ready_ns // 2) if len(ready) == len(names) else None

    found = []
    for seed in range(12):
        rng, now_s, events = random.Random(seed), 0.0, list[Event]()
        for _ in range(300):
            now_s += rng.expovariate(terms.preemptions_per_s)
            name = rng.choice(names)
            events += [Event(int(now_s * 1e9), name, "fail"), Event(int(now_s * 1e9), name, "join")]
        trace = Trace(names, tuple(events), int(now_s * 1e9))
        run = replay(trace, Policy("random", all_nodes, rules, 1))
        found.append(run.length_ns / (run.steps * step_ns))
    error = stdev(found) / len(found) ** 0.5
    assert error < 0.02 * (expected - 1)
    assert abs(fmean(found) - expected) < 3.5 * error


@pytest.mark.parametrize("rate", [0.0, 5e-324, 1e-18, 1e-9, 1e-5, 1e-3, 0.05, 2.0, 1e3])
@pytest.mark.parametrize("every_s", [None, 7.0, 3000.0])
def test_sums_over_attempts_give_the_same_slowdown(rate: float, every_s: float | None) -> None:
    """The oracle's sums and bisection come to what the closed form says, the largest one too."""
    for restart_s, cost_s in ((0.0, 0.0), (121.0, 15.8), (5.0, 600.0)):
        terms = Preemption(restart_s=restart_s, checkpoint_s=cost_s, checkpoint_every_s=every_s)
        expected = checkpoint_every_s(terms, rate)
        close = None if expected is None else pytest.approx(expected, rel=1e-5, abs=1e-12)
        assert preemption_oracle.interval_s(terms, rate) == close
        summed = preemption_oracle.slowdown(terms, rate)
        assert summed == pytest.approx(slowdown(terms, rate), rel=2e-13)


FORGERIES: list[Changes] = [
    {"renting.availability": 0.999},
    {"renting.cost_usd_per_useful_sequence": 1e-9},
    {"renting.useful_sequences_per_s": 1e9},
    {"renting.preemptions_per_hour": 0.0},
    {"renting.checkpoint_every_s": 1.0},
    {"renting.on_spot": []},
    {"renting": None},
    {"price_usd_per_hour": 0.01},
    {"instance.preemption.restart_s": 1.0},
    {"instance.preemption.checkpoint_s": 1.0},
    {"instance.objective.minimize": "step_time", "minimize": "step_time"},
]


@pytest.mark.parametrize("changes", FORGERIES)
def test_forged_terms_are_refused(changes: Changes) -> None:
    """Figures of the terms that are changed, with a digest that fits, are noticed."""
    document = build_document(planned(), SolveOptions())
    assert verify_document(document).ok
    assert not verify_document(forged(document, changes)).ok


def test_dearer_terms_are_refused() -> None:
    """A consistent plan file on demand, where spot costs less, is not the best one."""
    instance = planned().instance
    groups = tuple(group.but(spot=None) for group in instance.cluster.groups)
    plain = build_document(solve(instance.but(cluster={"groups": groups})), SolveOptions())
    offered = [group.model_dump(mode="json") for group in instance.cluster.groups]
    found = verify_document(forged(plain, {"instance.cluster.groups": offered}))
    assert any(problem.startswith("renting.on_spot") for problem in found.problems)
