"""Results with a true certificate, proved by brute force: every plan is tried."""

from dataclasses import dataclass
from itertools import product
from math import ceil

from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import Decisions
from formulations.instance import Instance
from formulations.plan import Plan, Shape
from formulations.space import PlanSpace, shapes
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.report.document import build_document
from solver.result import (
    Proof,
    Result,
    SearchLog,
    ShapeRecord,
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
    """The best plan of one shape."""

    time_ns: int
    plan: Plan


def best_of(tables: CostTables) -> Best | None:
    """The best plan of a shape among all; None if nothing fits."""
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


def _record(prover: Prover, shape: Shape, best: Best | None, incumbent: float) -> ShapeRecord:
    """The cheapest argument that closes the shape."""
    if best is None:
        proof: Proof = "memory" if prover.lacks_memory(shape) else "enumeration"
        return ShapeRecord(shape=shape, reason="infeasible", proof=proof)
    weight = objective_weight(prover.instance, shape)
    if best.time_ns * weight > incumbent:
        forms, target = ClosedForms(prover, [shape]), ceil(incumbent / weight)
        work = int(forms.work_ns()[0])
        if work * weight >= incumbent:
            return ShapeRecord(shape=shape, reason="bounded", proof="work", bound_ns=work)
        if refuted(forms, [target])[0]:
            return ShapeRecord(shape=shape, reason="bounded", proof="packing", bound_ns=target)
        if question_of(prover, shape).refutes(target):
            return ShapeRecord(shape=shape, reason="bounded", proof="pipeline", bound_ns=target)
    return ShapeRecord(shape=shape, reason="solved", proof="enumeration", bound_ns=best.time_ns)


def certified(instance: Instance) -> Result:
    """The optimum, every shape closed."""
    best = {shape: best_of(build_tables(instance, shape)) for shape in shapes(instance)}
    plans = [
        (one.time_ns * objective_weight(instance, shape), one)
        for shape, one in best.items()
        if one is not None
    ]
    objective, winner = min(plans, key=lambda pair: pair[0], default=(float("inf"), None))
    prover = Prover(PlanSpace(instance))
    records = [_record(prover, shape, one, objective) for shape, one in best.items()]
    return Result(
        instance=instance,
        status=Status.OPTIMAL if winner else Status.INFEASIBLE,
        termination=Termination.CLOSED,
        plan=winner.plan if winner else None,
        step_time_ns=winner.time_ns if winner else None,
        objective=objective if winner else None,
        bound=objective if winner else None,
        runtime_s=0.5,
        log=SearchLog(shapes=tuple(records)),
        method="exact",
    )


def certified_document(instance: Instance) -> PlanDocument:
    """The plan file of `certified`."""
    return build_document(certified(instance), SolveOptions())
