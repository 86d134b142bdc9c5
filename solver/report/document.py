"""From results to the content of plan and front files, and back to a plan and its costs."""

from formulations.costs.plan_costs import (
    PlanCosts,
    plan_costs,
)
from formulations.costs.renting import Terms
from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.plan import Plan
from formulations.units import seconds
from solver.document import (
    PlanDocument,
    shape_counts,
)
from solver.files import digest, sealed
from solver.front_document import (
    Aim,
    FamilyPoint,
    FamilyResult,
    FrontDocument,
    PointDocument,
    TermsDocument,
)
from solver.options import SolveOptions
from solver.plan_figures import plan_figures
from solver.result import Result, objective_weight


def build_document(result: Result, options: SolveOptions) -> PlanDocument:
    """The sealed plan file of a result; figures of the plan are None where there is none."""
    plan = result.plan
    document = PlanDocument(
        status=result.status,
        termination=result.termination,
        method=result.method,
        requested_gap=result.requested_gap,
        seed=options.seed,
        minimize=result.instance.objective.minimize,
        target=result.instance.search.target,
        step_time_s=None if result.step_time_ns is None else seconds(result.step_time_ns),
        lower_bound_s=_lower_bound_s(result),
        gap=result.gap,
        critical_path=None,
        rounding_error_s=None,
        runtime_s=result.runtime_s,
        throughput_sequences_per_s=None,
        model_flop_per_s_per_gpu=None,
        mfu=None,
        price_usd_per_hour=None,
        cost_usd_per_step=None,
        training_cost_usd=None,
        renting=None,
        evidence=(),
        time_sources=(),
        shape=plan.shape if plan else None,
        node_order=(),
        idle_nodes=(),
        replicas=(),
        history=result.log.history,
        shapes=shape_counts(result.log.shapes),
        closed_shapes=result.log.shapes,
        instance=result.instance,
    )
    if plan is not None and result.step_time_ns is not None:
        costs = plan_costs(document.instance, plan)
        figures = plan_figures(document.instance, plan, costs, result.step_time_ns)
        document = document.model_copy(update=figures)
    return sealed(document)


def _lower_bound_s(result: Result) -> float | None:
    """Bound of the step time; if money is minimised, at the rent of the plan found."""
    if result.bound is None:
        return None
    if result.plan is None:
        weight = 1.0 if result.instance.objective.minimize == "step_time" else 0.0
    else:
        weight = objective_weight(result.instance, result.plan.shape)
    return result.bound / weight / 1e9 if weight else None


def plan_of(document: PlanDocument) -> Plan:
    """The plan that a document describes; PlanError if it was changed or holds no plan."""
    if digest(document.model_dump(mode="json")) != document.digest:
        allowed = "the file as solve wrote it (verify names the field)"
        raise PlanError("digest", "the plan file was changed", allowed)
    if document.shape is None:
        raise PlanError("shape", f"no plan (status {document.status})", "a file with a plan")
    number = {name: n for n, name in enumerate(document.instance.cluster.node_names)}
    replicas = tuple(replica.replica(number) for replica in document.replicas)
    order = tuple(number[name] for name in document.node_order)
    return Plan(shape=document.shape, node_order=order, replicas=replicas)


def costs_of(document: PlanDocument) -> PlanCosts:
    """Costs of the plan of a document; PlanError as in `plan_of`, or if it makes no sense."""
    try:
        return plan_costs(document.instance, plan_of(document))
    except (LookupError, ValueError) as error:
        found = f"groups and stages that do not fit ({error})"
        raise PlanError("replicas", found, "a plan that verify accepts") from error


def build_front(result: FamilyResult, aim: Aim) -> FrontDocument:
    """The sealed front file of an outcome."""
    return sealed(
        FrontDocument(
            aim=aim,
            termination=result.termination,
            requested_gap=result.options.gap,
            seed=result.options.seed,
            runtime_s=result.runtime_s,
            points=tuple(_point(result, point) for point in result.points),
            clusters=result.clusters,
            family=result.family,
        )
    )


def _point(result: FamilyResult, point: FamilyPoint) -> PointDocument:
    step_ns = point.result.step_time_ns
    assert step_ns is not None, "a point has a plan"
    return PointDocument(
        nodes=point.nodes,
        nodes_used=point.nodes_used,
        terms=tuple(
            _terms(result.family.instance, rented, seconds(step_ns)) for rented in point.terms
        ),
        plan=build_document(point.result, result.options),
    )


def _terms(instance: Instance, terms: Terms, step_s: float) -> TermsDocument:
    kept_s, steps = step_s * terms.slowdown, instance.objective.steps
    cost = terms.usd_per_hour * kept_s / 3600
    return TermsDocument(
        on_spot=terms.on_spot,
        price_usd_per_hour=terms.usd_per_hour,
        availability=1 / terms.slowdown,
        sequences_per_s=instance.workload.global_batch / kept_s,
        cost_usd_per_step=cost,
        training_cost_usd=None if steps is None else cost * steps,
    )
