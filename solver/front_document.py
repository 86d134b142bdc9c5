"""The file of a front: which clusters are worth their money, and why the others are not.

One JSON object. Every point holds a plan file of its own cluster; of the others it says by what
point they are dominated, from which step time on, and that they have no faster plan. `verify`
proves all of that again.
"""

from typing import Annotated, Literal, Self

from pydantic import Field

from formulations.costs.renting import Terms
from formulations.instance import Instance
from formulations.instance.instance import Family
from formulations.instance.record import Index, Name, Record, Seconds
from formulations.units import SECONDS_PER_HOUR
from solver.document import PlanDocument
from solver.files import Envelope
from solver.result import Termination

#: What clusters are compared by: `solver.clusters.front`.
Aim = Literal["front", "time", "money", "subsets"]
#: best: on the front; dominated: by a plan of another cluster; infeasible: no plan within the
#: limits; open: neither is shown.
Standing = Literal["best", "dominated", "infeasible", "open"]
#: bounds: without a look at node orders; search: exhaustively, at least in part.
Means = Literal["bounds", "search"]

Numbers = tuple[Index, ...]  #: nodes per node group
StepNs = Annotated[int, Field(ge=0, lt=1 << 62)]


class ClusterRecord(Record):
    """One cluster of a family.

    step_time_ns: of the best plan that is known. bound_ns: no plan is faster, proved; no higher
    than its standing needs; None: there is no plan. dominated_by: nodes of that point.
    """

    nodes: Numbers
    standing: Standing
    closed_by: Means
    step_time_ns: StepNs | None = None
    bound_ns: StepNs | None = None
    dominated_by: Numbers | None = None


class TermsDocument(Record):
    """On which all nodes of a cluster are rented, and what that comes to.

    on_spot: groups. availability: share of the time that goes into steps that are kept. Costs are
    of these.
    """

    on_spot: tuple[Name, ...]
    price_usd_per_hour: float
    availability: float
    sequences_per_s: float
    cost_usd_per_step: float
    training_cost_usd: float | None

    @classmethod
    def of(cls, instance: Instance, terms: Terms, step_s: float) -> Self:
        """What a step of this length comes to, with all that preemptions cost."""
        kept_s, steps = step_s * terms.slowdown, instance.objective.steps
        cost = terms.usd_per_hour * kept_s / SECONDS_PER_HOUR
        return cls(
            on_spot=terms.on_spot,
            price_usd_per_hour=terms.usd_per_hour,
            availability=1 / terms.slowdown,
            sequences_per_s=instance.workload.global_batch / kept_s,
            cost_usd_per_step=cost,
            training_cost_usd=None if steps is None else cost * steps,
        )


class PointDocument(Record):
    """A cluster on the front, with a plan file for the nodes that its best plan uses.

    terms: those that no other cluster dominates it on, fastest first.
    """

    nodes: Numbers
    nodes_used: Numbers
    terms: Annotated[tuple[TermsDocument, ...], Field(min_length=1)]
    plan: PlanDocument


class FrontDocument(Envelope):
    """Everything that `verify` and `show` need; fastest point first."""

    written_by = "a front file written by pareto --out"
    renewed_by = "run pareto again"
    proof = {"points": {"__all__": {"plan": {"closed_configs"}}}}  # noqa: RUF012

    kind: Literal["front"] = "front"
    schema_version: Literal[6] = 6
    aim: Aim
    termination: Termination
    requested_gap: float = Field(ge=0, lt=1)
    seed: int
    runtime_s: Seconds
    points: tuple[PointDocument, ...]
    clusters: tuple[ClusterRecord, ...]
    family: Family

    @property
    def num_open(self) -> int:
        """Clusters of which it is not shown where they stand."""
        return sum(cluster.standing == "open" for cluster in self.clusters)
