"""`cross-check`: methods run side by side, and a wrong proof is caught."""

import json
from dataclasses import replace

import pytest

from formulations.instance import Instance
from formulations.space import configs
from solver.heuristics.local import local_plans
from solver.options import CheckMethod, SolveOptions
from solver.result import Result, Status, Termination
from solver.search import cross_check as module
from solver.search.cross_check import cross_check
from solver.search.driver import solve
from tests.command_line import output, run
from tests.conftest import ROOT
from tests.seeds import one_each
from tests.small_instances import random_instance

SMALL = ROOT / "instances" / "hetero_small.yaml"


@pytest.mark.parametrize("seed", one_each(range(10), 4))
def test_all_methods_agree_on_tiny_instances(seed: int) -> None:
    """Five methods: no contradiction, and the proofs meet."""
    comparison = cross_check(random_instance(seed), tuple(CheckMethod))
    assert [finding.method for finding in comparison.findings] == list(CheckMethod)
    assert comparison.contradictions == ()
    bounds = [f.bound for f in comparison.findings if f.method in ("exact", "cpsat", "milp")]
    assert len(set(bounds)) == 1


@pytest.mark.parametrize("seed", [0, 1, 5, 6])
def test_heuristics_claim_no_bound_but_one_that_is_met(seed: int) -> None:
    """Local search proves nothing; a min-max plan is optimal only with the bound that says so."""
    methods = (CheckMethod.MINMAX, CheckMethod.LOCAL)
    minmax, local = cross_check(random_instance(seed), methods).findings
    assert (minmax.bound == minmax.objective) == (minmax.status is Status.OPTIMAL)
    assert (minmax.bound is None) == (minmax.status is Status.FEASIBLE)
    assert (local.bound, local.status) == (None, Status.FEASIBLE)


def test_table_names_the_methods_and_the_verdict() -> None:
    """Exit code 0 on a real instance, with the usual methods."""
    out = output("cross-check", SMALL)
    for part in (
        "minmax",
        "local",
        "exact",
        "860.6 ms",
        "no plan is below a proved bound, of which there is 1",
    ):
        assert part in out


def wrong_solve(instance: Instance, options: SolveOptions, progress: object = None) -> Result:
    """`solve`, with a proof that goes one part in a thousand too far."""
    result = solve(instance, options)
    assert result.bound is not None
    return replace(result, bound=result.bound * 1.001)


def test_planted_wrong_bound_gives_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of local search refutes it; the message names both."""
    monkeypatch.setattr(module, "solve", wrong_solve)
    code, out, _ = run("cross-check", SMALL, "--method", "local", "--method", "exact", "--json")
    assert code == 1
    found = json.loads(out)
    assert any("exact proves" in one and "local has" in one for one in found["contradictions"])


def test_no_method_is_begun_after_an_interrupted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the first of two."""

    def interrupted(instance: Instance, options: SolveOptions, progress: object = None) -> Result:
        return replace(solve(instance, options), termination=Termination.INTERRUPTED)

    monkeypatch.setattr(module, "solve", interrupted)
    found = cross_check(random_instance(1), (CheckMethod.MINMAX, CheckMethod.EXACT)).findings
    assert [finding.method for finding in found] == ["minmax"]


def test_interrupted_local_search_keeps_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the first plan."""
    known = list(local_plans(random_instance(1), configs(random_instance(1))))

    def plans(*_: object) -> object:
        yield known[0]
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "local_plans", plans)
    [finding] = cross_check(random_instance(1), (CheckMethod.LOCAL,)).findings
    assert finding.step_time_ns == known[0][1]
    assert finding.termination is Termination.INTERRUPTED


def test_unknown_method_is_refused_in_one_line() -> None:
    """Exit code 2, with what is allowed."""
    code, _, err = run("cross-check", SMALL, "--method", "guess")
    assert code == 2
    assert "minmax" in err
