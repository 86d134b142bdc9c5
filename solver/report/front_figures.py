"""Throughput and cost of clusters, as tables and pictures of fronts show them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from formulations.costs.renting import Terms, chooses_terms, worthwhile_terms
from formulations.units import SECONDS_PER_HOUR
from solver.front_document import FrontDocument, PointDocument, TermsDocument


class Figures(NamedTuple):
    """Sequences per second of steps that are kept, and what is paid for them.

    paid: USD of the training, or of a million of them; in pictures of subsets nodes.
    """

    throughput: float
    paid: float


def speed_name(document: FrontDocument) -> str:
    """What throughputs are of."""
    return f"{_useful(document)}sequences/s"


def cost_name(document: FrontDocument) -> str:
    """What costs are of."""
    steps, useful = document.family.instance.objective.steps, _useful(document)
    batch = document.family.instance.workload.global_batch
    number = "a million" if steps is None else f"{steps * batch:,}"
    return f"{number} {useful}sequences"


def _useful(document: FrontDocument) -> str:
    return "useful " if chooses_terms(document.family.instance) else ""


def terms_of_cluster(document: FrontDocument, nodes: Sequence[int]) -> tuple[Terms, ...]:
    """On which the nodes of a cluster may be rented, fastest first."""
    return worthwhile_terms(document.family.instance, nodes)


def figures_of(document: FrontDocument, terms: Terms, step_time_s: float) -> Figures:
    """Of a cluster on these terms whose steps take so long."""
    instance, kept_s = document.family.instance, step_time_s * terms.slowdown
    batch = instance.workload.global_batch
    step_usd = terms.usd_per_hour * kept_s / SECONDS_PER_HOUR
    return Figures(batch / kept_s, training_usd(document, step_usd))


def training_usd(document: FrontDocument, step_usd: float) -> float:
    """Cost of all steps whose sequences `cost_name` counts."""
    instance = document.family.instance
    steps = instance.objective.steps
    return step_usd * (1e6 / instance.workload.global_batch if steps is None else steps)


def rows_of(document: FrontDocument) -> Iterator[tuple[PointDocument, TermsDocument]]:
    """Points with their terms, fastest first."""
    rows = [(point, terms) for point in document.points for terms in point.terms]
    return iter(sorted(rows, key=lambda row: -row[1].sequences_per_s))
