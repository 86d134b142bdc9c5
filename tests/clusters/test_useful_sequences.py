"""Money per useful sequence: all methods find the least, and the verifier refuses other terms."""

from functools import cache

import pytest

from formulations.costs.renting import terms_of
from solver.options import Method, SolveOptions
from solver.plan_figures import build_document
from solver.result import Result
from solver.search.driver import solve
from solver.verify import verify_document
from tests.best_plans import check_verified, optima_ns
from tests.resealed import forged
from tests.seeds import one_each
from tests.small_instances import spot_instance


@cache
def planned() -> Result:
    """Of an instance whose best plan is on spot nodes that are taken back."""
    results = (solve(spot_instance(seed)) for seed in range(40))
    return next(
        one
        for one in results
        if one.plan and terms_of(one.instance, one.plan.config.nodes_used).preemptions_per_hour > 1
    )


@pytest.mark.parametrize("method", ["exact", "cpsat", "milp"])
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


def test_dearer_terms_are_refused() -> None:
    """A consistent plan file on demand, where spot costs less, is not the best one."""
    instance = planned().instance
    groups = tuple(group.but(spot=None) for group in instance.cluster.groups)
    plain = build_document(solve(instance.but(cluster={"groups": groups})), SolveOptions())
    offered = [group.model_dump(mode="json") for group in instance.cluster.groups]
    checked = verify_document(forged(plain, {"instance.cluster.groups": offered}))
    assert any(problem.startswith("renting.on_spot") for problem in checked.problems)
