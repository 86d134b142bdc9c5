"""Why an instance has no plan, and the smallest change that would give it one.

A change is named only if a search with it found a plan; where the time for that runs out, the text
says so: "at least", "suffices".
"""

import math
import time
from collections.abc import Callable, Sequence

from formulations.instance import Instance
from formulations.space import group_degrees, micro_batches, node_vectors, shapes
from formulations.units import ceil_count
from solver.interrupt import GRACE_S, TimeUp, time_up_after
from solver.result import Infeasibility
from solver.search.closing import Stop
from solver.search.remedies import (
    Least,
    changed,
    fits_optimistically,
    has_plan,
    least_cost_usd,
    least_memory_gib,
    least_rent,
    least_step_time_s,
    memory_bound_gib,
    relaxations,
)

#: Time for looking for remedies, which are searches of their own.
LIMIT_S = 20.0
#: Of the figures that are named.
DIGITS = 10

#: Looks for changes of an instance that give a plan.
Look = Callable[[Instance, Stop], list[str]]

_UNKNOWN = "memory or limits: which of them was not found out within the time limit"
_NOTHING = "no single change of memory, limits or search is known to give a plan"


def explain(instance: Instance, limit_s: float = LIMIT_S) -> Infeasibility:
    """The constraint that cannot be met, and the changes found that give a plan, each alone.

    What is found within so many seconds; what does not ask whether to stop is ended soon after.
    """
    deadline = time.monotonic() + limit_s

    def stop() -> bool:
        return time.monotonic() >= deadline

    constraint, remedies = _UNKNOWN, list[str]()
    try:
        with time_up_after(limit_s + GRACE_S):
            constraint, looks = _binding(instance, stop)
            for look in looks:
                remedies += look(instance, stop)
    except TimeUp:
        pass
    return Infeasibility(constraint, ", or ".join(remedies) or _NOTHING)


def _binding(instance: Instance, stop: Stop) -> tuple[str, Sequence[Look]]:
    """The constraint that cannot be met, and where to look for what may help."""
    if next(shapes(instance), None) is None:
        return _no_shape(instance), (_price, _choices)
    if _limits_bind(instance, stop):
        text = "limits: every plan that fits memory exceeds the limit on step time or cost"
        return text, (_limits, _price)
    return _memory_text(instance, stop), (_memory, _price, _choices)


def _limits_bind(instance: Instance, stop: Stop) -> bool:
    limits = instance.limits
    if limits.max_step_time_s is None and limits.max_cost_usd_per_step is None:
        return False
    return has_plan(_unlimited(instance), stop) is not False


def _unlimited(instance: Instance) -> Instance:
    return changed(instance, "limits", max_step_time_s=None, max_cost_usd_per_step=None)


def _no_shape(instance: Instance) -> str:
    vectors = list(node_vectors(instance))
    if not vectors:
        limit = instance.limits.max_price_usd_per_hour
        return f"limits.max_price_per_hour: all nodes to choose from cost more than {limit:g} USD/h"
    if not any(any(True for _ in group_degrees(instance, used)) for used in vectors):
        heads = instance.workload.kv_heads
        return (
            "search.tensor_parallel: no degree divides the GPU count of the nodes used and the "
            f"{heads} key and value heads"
        )
    return (
        "no degrees fit: tp * dp * pp must equal the GPUs used, pp is at most the number of "
        f"blocks and dp at most the micro-batches per step (sizes {micro_batches(instance)})"
    )


def _price(instance: Instance, stop: Stop) -> list[str]:
    if instance.limits.max_price_usd_per_hour is None:
        return []
    return _named("limits.max_price_per_hour: {}", least_rent(instance, stop), "USD/h")


def _memory_text(instance: Instance, stop: Stop) -> str:
    if fits_optimistically(instance, stop):
        return "memory: no split, node order and share of micro-batches fits all GPUs at once"
    return "memory: no split of any shape fits the GPUs, even with the largest GPU everywhere"


def _memory(instance: Instance, stop: Stop) -> list[str]:
    bound_gib = memory_bound_gib(instance, stop)
    least = least_memory_gib(instance, bound_gib, stop)
    if least is None and bound_gib:
        return [f"at least {_rounded_up(bound_gib)} GiB more memory on every GPU"]
    return _named("{} more memory on every GPU", least, "GiB")


def _limits(instance: Instance, stop: Stop) -> list[str]:
    """Each limit alone; if neither helps alone, what the fastest and the cheapest plan need."""
    limits = instance.limits
    remedies = []
    if limits.max_step_time_s is not None:
        step_time = least_step_time_s(instance, stop)
        remedies += _named("limits.max_step_time: {}", step_time, "s")
    if limits.max_cost_usd_per_step is not None:
        remedies += _named("limits.max_cost_per_step: {}", least_cost_usd(instance, stop), "USD")
    if not remedies:
        free = _unlimited(instance)
        texts = _named("both limits: the fastest plan takes {}", least_step_time_s(free, stop), "s")
        texts += _named("the cheapest costs {} per step", least_cost_usd(free, stop), "USD")
        remedies = [", ".join(texts)] * bool(texts)
    return remedies


def _named(text: str, least: Least | None, unit: str) -> list[str]:
    """The text with the amount, if one is known."""
    if least is None:
        return []
    more = "" if least.exact else " (which suffices, less may)"
    return [text.format(f"{_rounded_up(least.value)} {unit}") + more]


def _rounded_up(value: float) -> str:
    """The value in decimal form, rounded up to DIGITS significant digits."""
    decimals = max(0, DIGITS - 1 - math.floor(math.log10(value))) if value else 0
    text = f"{ceil_count(value * 10.0**decimals) / 10.0**decimals:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def _choices(instance: Instance, stop: Stop) -> list[str]:
    """Choices that `search` leaves out and that give a plan."""
    return [text for text, allowed in relaxations(instance) if has_plan(allowed, stop)]
