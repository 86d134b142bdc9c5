"""What a search over the clusters of a family returns."""

from dataclasses import dataclass

from formulations.costs.renting import Terms
from formulations.instance.family import Counts, Family
from solver.front_document import ClusterRecord
from solver.options import SolveOptions
from solver.result import Result, Termination


@dataclass(frozen=True)
class FamilyPoint:
    """A cluster on the front, on these terms.

    `result`: of the cluster of just the nodes that its plan uses.
    """

    nodes: Counts
    nodes_used: Counts
    terms: tuple[Terms, ...]
    result: Result


@dataclass(frozen=True)
class FamilyResult:
    """Outcome of a search over a family: points, fastest first, and where all clusters stand."""

    family: Family
    options: SolveOptions
    termination: Termination
    points: tuple[FamilyPoint, ...]
    clusters: tuple[ClusterRecord, ...]
    runtime_s: float
