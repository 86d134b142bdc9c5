"""Best plans of whole plan spaces, by trying every plan; what the verifier makes of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance
from formulations.plan import Configuration
from formulations.space import PlanSpace, configs
from solver.interrupt import Deadline
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import Result, objective_weight
from solver.simulate import step_time_ns
from solver.verify import verify_document
from solver.verify.bounds import ANY_TIME_NS, Prover
from solver.verify.exhaust import exhaust
from tests.brute_force import optimum_ns
from tests.conftest import present


def optima_ns(instance: Instance) -> dict[Configuration, int]:
    known = {config: optimum_ns(build_tables(instance, config)) for config in configs(instance)}
    return {config: ns for config, ns in known.items() if ns is not None}


def all_tables(instances: Iterable[Instance]) -> Iterator[CostTables]:
    for instance in instances:
        yield from (build_tables(instance, config) for config in configs(instance))


def least_ns(instance: Instance) -> int | None:
    return min(optima_ns(instance).values(), default=None)


def least_objective(instance: Instance) -> float | None:
    """The same for what the instance minimises."""
    known = optima_ns(instance).items()
    return min((ns * objective_weight(instance, config) for config, ns in known), default=None)


def check_verified(result: Result, options: SolveOptions | None = None) -> None:
    found = verify_document(build_document(result, options or SolveOptions()))
    assert not found.problems


def check_space(instance: Instance) -> None:
    """The plan space lists its configurations once each, and takes each for one of its own."""
    listed = Counter(configs(instance))
    assert set(listed.values()) <= {1}
    assert not any(PlanSpace(instance).departure(config) for config in listed)


def refuted_share(refutes: Callable[[int], bool], best_ns: int) -> int:
    """How much of the best step, in thousandths, no plan is shown to be below; by halving."""
    low, high = 0, 1001
    while high - low > 1:
        middle = (low + high) // 2
        if refutes(best_ns * middle // 1000):
            low = middle
        else:
            high = middle
    return low


def check_claims(tables: CostTables, best_ns: int | None) -> None:
    """The verifier finds no plan below the best one of a config, and a true one below more."""
    instance, config = tables.instance, tables.config
    prover = Prover(PlanSpace(instance))
    proved = present(
        exhaust(prover, config, ANY_TIME_NS if best_ns is None else best_ns, Deadline(None))
    )
    assert proved.plan is None
    if best_ns is None:
        return
    for claim in (best_ns + 1, 3 * best_ns):
        refuted = present(exhaust(prover, config, claim, Deadline(None)))
        assert refuted.plan is not None
        costs = plan_costs(instance, refuted.plan)
        assert refuted.step_time_ns == step_time_ns(costs)
        assert best_ns <= step_time_ns(costs) < claim
        assert (costs.memory_bytes <= costs.limit_bytes).all()
        shares = sum(replica.micro_batches for replica in refuted.plan.replicas)
        assert shares == tables.num_micro_batches
