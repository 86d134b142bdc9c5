"""Results with a true certificate, proved by brute force: every plan is tried."""

from dataclasses import dataclass
from itertools import product
from math import ceil

from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import Decisions
from formulations.instance import Instance
from formulations.plan import Configuration, Plan
from formulations.space import PlanSpace, configs
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import (
    ConfigRecord,
    Proof,
    Result,
    SearchLog,
    Status,
    Termination,
    objective_weight,
)
from solver.verify.bounds import Prover
from solver.verify.closed_forms import ClosedForms, refuted
from solver.verify.refutation import question_of
from tests import brute_force


@dataclass(frozen=True)
class Best:
    """The best plan of one configuration."""

    time_ns: int
    plan: Plan


def best_of(tables: CostTables) -> Best | None:
    """The best plan of a configuration among all; None if nothing fits."""
    found: list[Best] = []
    splits, shares = list(brute_force.all_splits(tables)), list(brute_force.all_shares(tables))
    for order in brute_force.all_orders(tables):
        placed = brute_force.place(tables, order)
        for split, share in product(splits, shares):
            if brute_force.fits(tables, placed, split, share):
                time_ns = brute_force.step_time_ns(tables, placed, split, share)
                plan = Decisions(order, split, share).plan(tables)
                found.append(Best(time_ns, plan))
    return min(found, key=lambda best: best.time_ns, default=None)


def _record(
    prover: Prover, config: Configuration, best: Best | None, incumbent: float
) -> ConfigRecord:
    """The cheapest argument that closes the configuration."""
    if best is None:
        proof: Proof = "memory" if prover.lacks_memory(config) else "enumeration"
        return ConfigRecord(config=config, reason="infeasible", proof=proof)
    weight = objective_weight(prover.instance, config)
    if best.time_ns * weight > incumbent:
        forms, target = ClosedForms(prover, [config]), ceil(incumbent / weight)
        work = int(forms.work_ns()[0])
        if work * weight >= incumbent:
            return ConfigRecord(config=config, reason="bounded", proof="work", bound_ns=work)
        if refuted(forms, [target])[0]:
            return ConfigRecord(config=config, reason="bounded", proof="packing", bound_ns=target)
        if question_of(prover, config).refutes(target):
            return ConfigRecord(config=config, reason="bounded", proof="pipeline", bound_ns=target)
    return ConfigRecord(config=config, reason="solved", proof="enumeration", bound_ns=best.time_ns)


def certified(instance: Instance) -> Result:
    """The optimum, every configuration closed."""
    best = {config: best_of(build_tables(instance, config)) for config in configs(instance)}
    plans = [
        (one.time_ns * objective_weight(instance, config), one)
        for config, one in best.items()
        if one is not None
    ]
    objective, winner = min(plans, key=lambda pair: pair[0], default=(float("inf"), None))
    prover = Prover(PlanSpace(instance))
    records = [_record(prover, config, one, objective) for config, one in best.items()]
    return Result(
        instance=instance,
        status=Status.OPTIMAL if winner else Status.INFEASIBLE,
        termination=Termination.CLOSED,
        plan=winner.plan if winner else None,
        step_time_ns=winner.time_ns if winner else None,
        objective=objective if winner else None,
        bound=objective if winner else None,
        runtime_s=0.5,
        log=SearchLog(configs=tuple(records)),
        method="exact",
    )


def certified_document(instance: Instance) -> PlanDocument:
    """The plan file of `certified`."""
    return build_document(certified(instance), SolveOptions())
