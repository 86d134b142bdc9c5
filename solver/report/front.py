"""From the outcome of a search over clusters to the front file's content."""

from formulations.units import seconds
from solver.document import HETPLAN_VERSION, sealed
from solver.family_result import FamilyPoint, FamilyResult
from solver.front_document import (
    FRONT_SCHEMA_VERSION,
    Aim,
    FrontDocument,
    PointDocument,
)
from solver.report.document import build_document
from solver.result import rent_usd_per_hour


def build_front(found: FamilyResult, aim: Aim) -> FrontDocument:
    """The sealed front file of an outcome."""
    return sealed(
        FrontDocument(
            kind="front",
            schema_version=FRONT_SCHEMA_VERSION,
            hetplan_version=HETPLAN_VERSION,
            aim=aim,
            termination=found.termination,
            requested_gap=found.options.gap,
            seed=found.options.seed,
            runtime_s=found.runtime_s,
            points=tuple(_point(found, point) for point in found.points),
            clusters=found.clusters,
            family=found.family,
            digest="",
        )
    )


def _point(found: FamilyResult, point: FamilyPoint) -> PointDocument:
    rent = rent_usd_per_hour(found.family.instance, point.nodes)
    step_ns = point.result.step_time_ns
    assert step_ns is not None, "a point has a plan"
    cost = rent * seconds(step_ns) / 3600
    steps = found.family.instance.objective.steps
    return PointDocument(
        nodes=point.nodes,
        nodes_used=point.nodes_used,
        price_usd_per_hour=rent,
        cost_usd_per_step=cost,
        training_cost_usd=None if steps is None else cost * steps,
        plan=build_document(point.result, found.options),
    )
