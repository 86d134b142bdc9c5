"""From results to the content of plan and front files, and back to a plan and its costs."""

from formulations.costs.plan_costs import PlanCosts, plan_costs
from formulations.errors import PlanError
from formulations.plan import Plan
from formulations.units import seconds
from solver.document import PlanDocument, config_counts
from solver.files import digest, sealed
from solver.front_document import Aim, FamilyResult, FrontDocument, PointDocument, TermsDocument
from solver.options import SolveOptions
from solver.plan_figures import NO_FIGURES, plan_figures
from solver.result import Result, objective_weight


def build_document(result: Result, options: SolveOptions) -> PlanDocument:
    """The sealed plan file of a result; figures of the plan are None where there is none."""
    plan, step_time_ns, bound_s = result.plan, result.step_time_ns, None
    if plan is not None and step_time_ns is not None:
        costs = plan_costs(result.instance, plan)
        figures = plan_figures(result.instance, plan, costs, step_time_ns)
        weight = objective_weight(result.instance, plan.config)
    else:
        figures = NO_FIGURES
        weight = 1.0 if result.instance.objective.minimize == "step_time" else 0.0
    # Of the step time; if money is minimised, at the rent of the plan found
    if result.bound is not None and weight:
        bound_s = result.bound / weight / 1e9
    return sealed(
        PlanDocument(
            status=result.status,
            termination=result.termination,
            method=result.method,
            requested_gap=result.requested_gap,
            seed=options.seed,
            minimize=result.instance.objective.minimize,
            target=result.instance.search.target,
            lower_bound_s=bound_s,
            gap=result.gap,
            runtime_s=result.runtime_s,
            history=result.log.history,
            configs=config_counts(result.log.configs),
            closed_configs=result.log.configs,
            instance=result.instance,
            **figures,
        )
    )


def plan_of(document: PlanDocument) -> Plan:
    """The plan that a document describes; PlanError if it was changed or holds no plan."""
    if digest(document.model_dump(mode="json")) != document.digest:
        allowed = "the file as solve wrote it (verify names the field)"
        raise PlanError("digest", "the plan file was changed", allowed)
    if document.config is None:
        raise PlanError("config", f"no plan (status {document.status})", "a file with a plan")
    number = {name: n for n, name in enumerate(document.instance.cluster.node_names)}
    replicas = tuple(replica.replica(number) for replica in document.replicas)
    order = tuple(number[name] for name in document.node_order)
    return Plan(config=document.config, node_order=order, replicas=replicas)


def costs_of(document: PlanDocument) -> PlanCosts:
    """Costs of the plan of a document; PlanError as in `plan_of`, or if it makes no sense."""
    try:
        return plan_costs(document.instance, plan_of(document))
    except (LookupError, ValueError) as error:
        found = f"groups and stages that do not fit ({error})"
        raise PlanError("replicas", found, "a plan that verify accepts") from error


def build_front(result: FamilyResult, aim: Aim) -> FrontDocument:
    """The sealed front file of an outcome."""
    points = []
    for point in result.points:
        assert point.result.step_time_ns is not None, "a point has a plan"
        instance, step_s = result.family.instance, seconds(point.result.step_time_ns)
        points.append(
            PointDocument(
                nodes=point.nodes,
                nodes_used=point.nodes_used,
                terms=tuple(TermsDocument.of(instance, terms, step_s) for terms in point.terms),
                plan=build_document(point.result, result.options),
            )
        )
    return sealed(
        FrontDocument(
            aim=aim,
            termination=result.termination,
            requested_gap=result.options.gap,
            seed=result.options.seed,
            runtime_s=result.runtime_s,
            points=tuple(points),
            clusters=result.clusters,
            family=result.family,
        )
    )
