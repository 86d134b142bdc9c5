"""From the outcome of a search over clusters to the front file's content."""

from formulations.costs.renting import Terms
from formulations.instance import Instance
from formulations.units import seconds
from solver.family_result import FamilyPoint, FamilyResult
from solver.files import sealed
from solver.front_document import (
    Aim,
    FrontDocument,
    PointDocument,
    TermsDocument,
)
from solver.report.document import build_document


def build_front(found: FamilyResult, aim: Aim) -> FrontDocument:
    """The sealed front file of an outcome."""
    return sealed(
        FrontDocument(
            aim=aim,
            termination=found.termination,
            requested_gap=found.options.gap,
            seed=found.options.seed,
            runtime_s=found.runtime_s,
            points=tuple(_point(found, point) for point in found.points),
            clusters=found.clusters,
            family=found.family,
        )
    )


def _point(found: FamilyResult, point: FamilyPoint) -> PointDocument:
    step_ns = point.result.step_time_ns
    assert step_ns is not None, "a point has a plan"
    return PointDocument(
        nodes=point.nodes,
        nodes_used=point.nodes_used,
        terms=tuple(_terms(found.family.instance, own, seconds(step_ns)) for own in point.terms),
        plan=build_document(point.result, found.options),
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
