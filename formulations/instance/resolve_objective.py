"""What is minimised: whether all is there that it asks for, and what preemptions cost."""

from formulations.instance.documents import Place
from formulations.instance.input_limits import MOST_CHOICES_OF_TERMS
from formulations.instance.schema import InstanceFile


def check_objective(written: InstanceFile, place: Place) -> None:
    """Raises InstanceError for steps or prices that are missing, and limits that do not fit."""
    objective, limits = written.objective, written.limits
    if objective.minimize == "training_cost" and objective.steps is None:
        allowed = "steps of the training, which training_cost needs"
        raise place.at("objective", "steps").error("missing", allowed)
    chooses = objective.minimize == "cost_per_useful_sequence"
    if chooses:
        _check_terms(written, place)
    wants_prices = (
        objective.minimize != "step_time"
        or limits.max_cost_usd_per_step is not None
        or limits.max_price_usd_per_hour is not None
    )
    for j, group in enumerate(written.cluster.groups):
        if wants_prices and group.price is None and not (chooses and group.spot):
            allowed = "the price of one node, as objective or limits ask for money"
            raise place.at("cluster", "groups", j, "price").error("missing", allowed)


def _check_terms(written: InstanceFile, place: Place) -> None:
    """What the choice between on demand and spot cannot do."""
    if written.limits.max_cost_usd_per_step is not None:
        found = "a limit, with the objective cost_per_useful_sequence"
        allowed = "max_step_time or max_price_per_hour"
        raise place.at("limits", "max_cost_per_step").error(found, allowed)
    groups = written.cluster.groups
    both = [j for j, group in enumerate(groups) if group.spot and group.price is not None]
    if len(both) > MOST_CHOICES_OF_TERMS:
        found = f"a price on demand and on spot, as of {len(both) - 1} other groups"
        allowed = f"at most {MOST_CHOICES_OF_TERMS} groups with both; leave out one of the two"
        raise place.at("cluster", "groups", both[MOST_CHOICES_OF_TERMS], "spot").error(
            found, allowed
        )
