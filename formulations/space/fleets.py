"""What of `search` and `limits` pipelines of fleets cannot keep to.

Pipelines are alike in nothing but the micro-batch: each is the fastest on its nodes, with a number
of GPUs for each stage, whole optimizer states, and a share of the micro-batches. As many train as
are fastest, after every failure others. What remains of the two sections holds for them as for the
plans of `solve`, but for `degrees`, `micro_batches` and `target`, which are of replicas alike.
"""

from collections.abc import Iterator
from typing import NamedTuple

from formulations.errors import InstanceError, joined
from formulations.instance.documents import Place
from formulations.instance.instance import Instance
from formulations.instance.search import plain_schedules

_FREE = {
    "data_parallel": "none; as many pipelines train as are fastest",
    "pipeline_parallel": "none; pipelines have as many stages as are fastest",
}
#: Limits: names and units of instances, what is allowed.
_LIMITS = {
    "max_step_time": ("max_step_time_s", "s", "none; with every node that fails steps take longer"),
    "max_cost_per_step": ("max_cost_usd_per_step", "USD", "none; steps cost more after failures"),
    "max_price_per_hour": ("max_price_usd_per_hour", "USD/h", "none; all groups may be taken"),
}


class Unfit(NamedTuple):
    """A field that fleets cannot keep to; entry: of its list, or None for all of it."""

    field: str
    found: str
    allowed: str
    entry: int | None = None

    def error(self, place: Place | None) -> InstanceError:
        """To raise; place: of the instance in a file."""
        if place is None:
            return InstanceError(self.field, self.found, self.allowed)
        at = place.at(*self.field.split("."))
        at = at if self.entry is None else at.listed(self.entry)
        return at.error(self.found, self.allowed)


def unfit_fields(instance: Instance) -> Iterator[Unfit]:
    """Every field of an instance that fleets cannot keep to."""
    search = instance.search
    plain = plain_schedules(search)
    for i, name in enumerate(search.schedule):
        if name not in plain:
            allowed = "1f1b or gpipe; solve takes the others"
            yield Unfit("search.schedule", f"the schedule {name}", allowed, i)
    for field, needed in (
        ("expert_parallel", 1),
        ("context_parallel", 1),
        ("expert_tensor_parallel", "tp"),
        ("zero", 0),
        ("optimizer_instances", 1),
    ):
        listed = getattr(search, field)
        if needed not in listed:
            choices = " or ".join(map(str, listed))
            yield Unfit(f"search.{field}", choices, f"{needed} too; solve takes the others", 0)
    if instance.cluster.has_joined_nodes:
        yield Unfit("cluster.joined_nodes", "several", "1; solve takes them")
    if not search.idle_nodes:
        yield Unfit("search.idle_nodes", "false", "true; nodes idle where no pipeline takes them")
    for field, allowed in _FREE.items():
        if degrees := getattr(search, field):
            yield Unfit(f"search.{field}", " or ".join(map(str, degrees)), allowed)
    for field, (attribute, unit, allowed) in _LIMITS.items():
        if limit := getattr(instance.limits, attribute):
            yield Unfit(f"limits.{field}", f"{limit:g} {unit}", allowed)


def check_fleets(instance: Instance, place: Place | None = None) -> None:
    """Raises InstanceError for all fields that fleets cannot keep to."""
    if wrong := [unfit.error(place) for unfit in unfit_fields(instance)]:
        raise joined(wrong)
