"""What is wanted of the clusters of a family: a front, within limits of a training, or subsets."""

from dataclasses import dataclass
from math import ceil

from formulations.costs.renting import chooses_terms
from formulations.errors import PlannerError
from formulations.instance.instance import Family
from solver.front_document import Aim

#: The largest budget of a training.
MOST_USD = 10**15


@dataclass(frozen=True)
class Wanted:
    """subsets: the nodes of one cluster that help. Else of a training of so many `sequences`.

    With a budget the fastest cluster within it, with a deadline the cheapest; with both, or
    neither, the front. Raises PlannerError for what does not go together.
    """

    subsets: bool = False
    budget_usd: float | None = None
    deadline_s: float | None = None
    sequences: int | None = None

    def __post_init__(self) -> None:
        limits = self.budget_usd, self.deadline_s, self.sequences
        if self.subsets and limits != (None, None, None):
            raise PlannerError("--subsets is of time, so no --budget, --deadline or --sequences")

    def family(self, family: Family, name: str) -> tuple[Family, Aim]:
        """The clusters with these limits, and what they are compared by; name: of their file."""
        if self.subsets:
            return family.but(fewest=(0,) * len(family.fewest)), "subsets"
        limited = self._limited(family)
        _check_ranges(limited, name)
        if (self.budget_usd is None) == (self.deadline_s is None):
            return limited, "front"
        return limited, "time" if self.deadline_s is None else "money"

    def _limited(self, family: Family) -> Family:
        instance = family.instance
        steps, limits = instance.objective.steps, dict[str, float]()
        if self.sequences is not None:
            steps = ceil(self.sequences / instance.workload.global_batch)
        if steps is None and (self.budget_usd, self.deadline_s) != (None, None):
            raise PlannerError("--budget and --deadline are of a training: name its --sequences")
        if self.budget_usd is not None and steps is not None:
            if self.budget_usd > MOST_USD:
                raise PlannerError(
                    f"--budget {self.budget_usd:g}: allowed: at most {MOST_USD:,} USD"
                )
            limits["max_cost_usd_per_step"] = self.budget_usd / steps
        if self.deadline_s is not None and steps is not None:
            limits["max_step_time_s"] = self.deadline_s / steps
        return family.but(instance={"objective": {"steps": steps}, "limits": limits})


def _check_ranges(family: Family, name: str) -> None:
    """Returns if there are clusters to compare, by prices that they have; PlannerError if not."""
    if family.fewest == family.most:
        allowed = "a range of nodes for some group, such as nodes: {min: 0, max: 8}"
        raise PlannerError(f"{name}: one cluster; allowed: {allowed}; --subsets takes one cluster")
    groups, chooses = family.instance.cluster.groups, chooses_terms(family.instance)
    for group in groups:
        if group.spot is not None and group.spot.only and not chooses:
            problem = f"cluster.groups: {group.name} has a price on spot alone"
            allowed = "a price on demand, or objective: {minimize: cost_per_useful_sequence}"
            raise PlannerError(f"{name} {problem}; allowed: {allowed}")
    on_spot = (group.spot.price_usd_per_hour for group in groups if group.spot and chooses)
    if not any((*(group.price_usd_per_hour for group in groups), *on_spot)):
        allowed = "the price of one node, as clusters are compared by money; --subsets needs none"
        raise PlannerError(f"{name} cluster.groups: no price; allowed: {allowed}")
