"""`cross-check`: methods run side by side, and a wrong proof is caught."""

import json
from dataclasses import replace

import pytest

from formulations.instance import Instance
from formulations.space import configs
from solver.heuristics.local import local_plans
from solver.heuristics.time_tables import TimeTables
from solver.options import CheckMethod, SolveOptions
from solver.result import Result, Status, Termination
from solver.search import cross_check as module
from solver.search.cross_check import cross_check
from solver.search.driver import solve
from tests.command_line import run
from tests.conftest import ROOT
from tests.seeds import one_each
from tests.small_instances import random_instance


@pytest.mark.parametrize("seed", one_each(range(10), 10))
def test_all_methods_agree_on_tiny_instances(seed: int) -> None:
    """Five methods: no contradiction, and the proofs meet.

    Local search proves nothing; a min-max plan is optimal only with the bound that says so.
    """
    comparison = cross_check(random_instance(seed), tuple(CheckMethod))
    assert [finding.method for finding in comparison.findings] == list(CheckMethod)
    assert comparison.contradictions == ()
    assert all((f.config is None) == (f.step_time_ns is None) for f in comparison.findings)
    by_method = {finding.method: finding for finding in comparison.findings}
    assert len({by_method[CheckMethod(name)].bound for name in ("exact", "cpsat", "milp")}) == 1
    minmax, local = by_method[CheckMethod.MINMAX], by_method[CheckMethod.LOCAL]
    assert (minmax.bound == minmax.objective) == (minmax.status is Status.OPTIMAL)
    assert (minmax.bound is None) == (minmax.status is Status.FEASIBLE)
    assert (local.bound, local.status) == (None, Status.FEASIBLE)
    assert local.termination is Termination.HEURISTIC  # no limit was reached


def test_planted_wrong_bound_gives_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of local search refutes a proof that goes too far; the message names both."""

    def wrong_solve(instance: Instance, options: SolveOptions, progress: object = None) -> Result:
        result = solve(instance, options)
        return replace(result, bound=(result.bound or 0) * 1.001)

    monkeypatch.setattr(module, "solve", wrong_solve)
    small = ROOT / "tests" / "data" / "solved" / "unlike_ends.yaml"
    code, out, _ = run("cross-check", small, "--method", "local", "--method", "exact", "--json")
    assert code == 1
    contradictions = json.loads(out)["contradictions"]
    assert any("exact proves" in line and "local has" in line for line in contradictions)


def test_no_method_is_begun_after_an_interrupted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(instance: Instance, options: SolveOptions, progress: object = None) -> Result:
        return replace(solve(instance, options), termination=Termination.INTERRUPTED)

    monkeypatch.setattr(module, "solve", interrupted)
    findings = cross_check(random_instance(1), (CheckMethod.MINMAX, CheckMethod.EXACT)).findings
    assert [finding.method for finding in findings] == ["minmax"]


@pytest.mark.parametrize("method", [CheckMethod.LOCAL, CheckMethod.AMP])
def test_interrupted_heuristics_keep_their_plan(
    method: CheckMethod, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = random_instance(1)
    first = next(local_plans(configs(instance), TimeTables(instance), 0))

    def plans(*_: object) -> object:
        yield first
        raise KeyboardInterrupt

    monkeypatch.setattr(module, f"{method}_plans", plans)
    [finding] = cross_check(random_instance(1), (method,)).findings
    assert finding.step_time_ns == first[1]
    assert finding.termination is Termination.INTERRUPTED
