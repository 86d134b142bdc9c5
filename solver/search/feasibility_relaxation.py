"""Why an instance has no plan, and the smallest change that would give it one.

A change is named only if an exact search with it found a plan. Where the time for that runs out,
the text says so: "at least", "suffices". A search that is stopped early knows less: None for "is
there a plan?", and `exact=False` for a least value, which is then a value that suffices.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from formulations.costs.renting import rent_usd_per_hour
from formulations.instance import Instance
from formulations.instance.profile import covered_degrees
from formulations.instance.resolve_workload import has_flash
from formulations.instance.targets import TARGETS
from formulations.plan import PARAMETERS_SPLIT, Configuration
from formulations.space import configs, configs_of
from formulations.space.configurations import group_degrees, micro_batches, node_vectors
from formulations.space.launch import runs
from formulations.units import GIB, NANOSECONDS_PER_SECOND, ceil_count, powers_of_two
from solver.graph.problem import Intervals
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import GRACE_S, Deadline, Stop, TimeUp, time_up_after
from solver.result import Infeasibility, longest_step_ns
from solver.search.enumeration import MOST_GAP, enumerate_config, lacks_memory
from solver.search.fathoming import ANY_TIME
from solver.study.store import FREE_LIMITS

#: Memory is added to every GPU in steps of this size, up to a size at which every plan fits.
MEMORY_STEP_GIB = 1 / 16
_MOST_STEPS = 1 << 20


@dataclass(frozen=True)
class Least:
    """A value with which there is a plan, None where none is known; `exact`: none with less."""

    value: float | None
    exact: bool


def with_memory(instance: Instance, extra_gib: float) -> Instance:
    """The instance with this much more memory on every GPU."""
    groups, more = instance.cluster.groups, round(extra_gib * GIB)
    larger = (group.but(gpu={"memory_bytes": group.gpu.memory_bytes + more}) for group in groups)
    return instance.but(cluster={"groups": tuple(larger)})


def _least_objective(
    instance: Instance,
    weight: Callable[[Configuration], float],
    stop: Stop,
    space: Iterable[Configuration] | None = None,
    any_plan: bool = False,
) -> Least:
    """Least step time in ns times weight over all plans (of `space`).

    any_plan: the first plan that is found is good enough.
    """
    times, space = TimeTables(instance), list(configs(instance) if space is None else space)
    pairs = zip(times.forms(space), space, strict=True)
    bounds = [(form.bound_ns * weight(config), config) for form, config in pairs]
    best, exact = None, True
    for bound, config in sorted(bounds, key=itemgetter(0)):  # those in closed form
        if best is not None and (bound >= best or any_plan):
            break
        if stop():
            return Least(best, exact=False)
        intervals, factor = Intervals(times.costs(config)), weight(config)
        if lacks_memory(intervals):
            continue
        longest_ns = longest_step_ns(instance, config.nodes_used)
        gap = MOST_GAP if any_plan and longest_ns is None else 0.0
        cutoff_ns = ANY_TIME if longest_ns is None else longest_ns + 1
        if factor and best is not None:
            cutoff_ns = min(cutoff_ns, math.ceil(best / factor))
        answer = enumerate_config(intervals, cutoff_ns, gap, stop)
        exact &= answer.complete
        if answer.step_time_ns is not None:
            objective = answer.step_time_ns * factor
            best = objective if best is None else min(best, objective)
    return Least(best, exact)


def has_plan(
    instance: Instance, stop: Stop, among: Iterable[Configuration] | None = None
) -> bool | None:
    """Whether some config (of `among`, else of all) has a plan; None: unknown when stopped."""
    first = _least_objective(instance, lambda _: 1.0, stop, among, any_plan=True)
    if first.value is not None:
        return True
    return False if first.exact else None


def fits_optimistically(instance: Instance, stop: Stop) -> bool:
    """Whether a config would fit if all GPUs were as large as the largest; True when stopped."""
    times = TimeTables(instance)
    return any(
        stop() or not lacks_memory(Intervals(times.costs(config))) for config in configs(instance)
    )


def relaxations(instance: Instance) -> Iterator[tuple[str, Instance]]:
    """Choices that the instance leaves out, each as a text and as the instance that allows it.

    With another launch target where the instance's cannot run them.
    """
    for text, sections in _left_out(instance):
        wider = instance.but(**sections)
        target = next(
            name for name in (instance.search.target, *TARGETS) if runs(name, wider.search)
        )
        if target == instance.search.target:
            yield text, wider
        else:
            yield f"{text} with search.target: {target}", wider.but(search={"target": target})


def _left_out(instance: Instance) -> Iterator[tuple[str, dict[str, Any]]]:
    """Wider values of fields, by section, whoever can run them."""
    search, workload, cluster = instance.search, instance.workload, instance.cluster
    unmeasured = instance.profile is None
    choices = (
        choice for used in node_vectors(instance) for choice in group_degrees(instance, used)
    )
    sizes = {degrees.tp for choice in choices for degrees in choice if degrees.tp > 1}
    splits = any(workload.sequence_length % tp == 0 for tp in sizes)
    plain = not workload.flash_attention
    # A field of `search`, a value that it may have too, and whether that may help.
    table: tuple[tuple[str, Any, bool], ...] = (
        ("recompute", "full", True),
        ("recompute", "selective", plain),
        ("sequence_parallel", True, unmeasured and splits),
        ("zero", 1, max(search.zero) < 1),
        ("sync_each_batch", True, True),
        ("micro_batches", "uneven", True),
        ("idle_nodes", True, True),
        ("embedding_only_stages", True, True),
    )
    for name, value, helps in table:
        given = getattr(search, name)
        several = isinstance(given, tuple)
        if helps and value not in (given if several else (given,)):
            wider = (*given, value) if several else value
            yield f"search.{name}: {str(value).lower()}", {"search": {name: wider}}
    if unmeasured and plain and has_flash(cluster, workload.precision):
        yield "workload.flash_attention: true", {"workload": workload.with_flash()}
    if max(search.zero) < PARAMETERS_SPLIT and search.micro_batches == "even":
        yield "search.zero: 3", {"search": {"zero": tuple(range(PARAMETERS_SPLIT + 1))}}
    if search.micro_batch is not None and 1 not in search.micro_batch:
        yield "1 in search.micro_batch", {"search": {"micro_batch": (1, *search.micro_batch)}}
    for name in ("data_parallel", "pipeline_parallel"):
        if getattr(search, name) is not None:
            yield f"no search.{name}", {"search": {name: None}}
    if search.tensor_parallel is not None:
        # Powers of two that its list leaves out and that could be used
        listed, largest = search.tensor_parallel, max(g.gpus_per_node for g in cluster.groups)
        more = [tp for tp in powers_of_two(largest) if tp not in listed]
        more = [tp for tp in more if workload.kv_heads % tp == 0]
        if instance.profile is not None:
            kinds = list(dict.fromkeys(run.layer.kind for run in workload.layer_runs))
            more = covered_degrees(instance.profile, kinds, cluster, more)
        if more:
            text = f"{', '.join(map(str, more))} in search.tensor_parallel"
            yield text, {"search": {"tensor_parallel": (*listed, *more)}}


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
    stop = Deadline(limit_s).over
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
    if next(configs(instance), None) is None:
        vectors, heads = list(node_vectors(instance)), instance.workload.kv_heads
        if not vectors:
            limit = f"{instance.limits.max_price_usd_per_hour:g} USD/h"
            text = f"limits.max_price_per_hour: all nodes to choose from cost more than {limit}"
        elif not any(any(True for _ in group_degrees(instance, used)) for used in vectors):
            text = (
                "search.tensor_parallel: no degree divides the GPU count of the nodes used and the "
                f"{heads} key and value heads"
            )
        else:
            text = (
                "no degrees fit: tp * dp * pp must equal the GPUs used, pp is at most the number "
                "of blocks and dp at most the micro-batches per step "
                f"(sizes {micro_batches(instance)})"
            )
        return text, (_price, _choices)
    limited = any(getattr(instance.limits, name) is not None for name in FREE_LIMITS)
    free = instance.but(limits=dict.fromkeys(FREE_LIMITS))
    if limited and has_plan(free, stop) is not False:
        text = "limits: every plan that fits memory exceeds the limit on step time or cost"
        return text, (_limits, _price)
    text = (
        "memory: no split of any configuration fits the GPUs, even with the largest GPU everywhere"
    )
    if fits_optimistically(instance, stop):
        text = "memory: no split, node order and share of micro-batches fits all GPUs at once"
    return text, (_memory, _price, _choices)


def _price(instance: Instance, stop: Stop) -> list[str]:
    """The limit on rent: that of the cheapest nodes that a plan can use."""
    if instance.limits.max_price_usd_per_hour is None:
        return []
    without, exact = instance.but(limits={"max_price_usd_per_hour": None}), True
    rents = {used: rent_usd_per_hour(instance, used) for used in node_vectors(without)}
    for used in sorted(rents, key=lambda used: rents[used]):
        answer = has_plan(without, stop, configs_of(without, used))
        if answer:
            least = Least(rents[used], exact)
            return _named("limits.max_price_per_hour: {}", least, "USD/h")
        exact &= answer is False
    return []


def _memory(instance: Instance, stop: Stop) -> list[str]:
    """More of it, on every GPU, in whole steps: more memory never takes a plan away."""
    unknown: list[int] = []

    def larger(steps: int) -> Instance:
        return with_memory(instance, steps * MEMORY_STEP_GIB)

    def suffices(steps: int) -> bool:
        answer = has_plan(larger(steps), stop)
        unknown.extend([steps] if answer is None else [])
        return bool(answer)

    # With fewer there is no plan; from there on the numbers of steps are tried exactly.
    numbers = range(_MOST_STEPS)
    fewest = bisect_left(numbers, True, key=lambda n: fits_optimistically(larger(n), stop))
    low = high = max(1, fewest)
    possible = suffices(_MOST_STEPS)
    while possible and not suffices(high):
        low, high, possible = high + 1, min(2 * high, _MOST_STEPS), not unknown
    if not possible:
        at_least = f"at least {_rounded_up(fewest * MEMORY_STEP_GIB)} GiB"
        return [f"{at_least} more memory on every GPU"] * bool(fewest)
    extra_gib = (low + bisect_left(numbers[low:high], True, key=suffices)) * MEMORY_STEP_GIB
    return _named("{} more memory on every GPU", Least(extra_gib, exact=not unknown), "GiB")


def _limits(instance: Instance, stop: Stop) -> list[str]:
    """Each limit alone; if neither helps alone, what the fastest and the cheapest plan need."""
    remedies, free = list[str](), instance.but(limits=dict.fromkeys(FREE_LIMITS))

    def seconds(config: Configuration) -> float:
        return 1 / NANOSECONDS_PER_SECOND

    def usd(config: Configuration) -> float:
        return rent_usd_per_hour(instance, config.nodes_used) / 3600 / NANOSECONDS_PER_SECOND

    texts, units = ("limits.max_step_time: {}", "limits.max_cost_per_step: {}"), ("s", "USD")
    for name, text, weight, unit in zip(FREE_LIMITS, texts, (seconds, usd), units, strict=True):
        if getattr(instance.limits, name) is not None:
            without = instance.but(limits={name: None})
            remedies += _named(text, _least_objective(without, weight, stop), unit)
    if not remedies:
        fastest, cheapest = (_least_objective(free, weight, stop) for weight in (seconds, usd))
        needs = _named("both limits: the fastest plan takes {}", fastest, "s")
        needs += _named("the cheapest costs {} per step", cheapest, "USD")
        remedies = [", ".join(needs)] * bool(needs)
    return remedies


def _choices(instance: Instance, stop: Stop) -> list[str]:
    """Choices that `search` leaves out and that give a plan."""
    return [text for text, allowed in relaxations(instance) if has_plan(allowed, stop)]


def _named(text: str, least: Least, unit: str) -> list[str]:
    """The text with the amount, if one is known."""
    if least.value is None:
        return []
    more = "" if least.exact else " (which suffices, less may)"
    return [text.format(f"{_rounded_up(least.value)} {unit}") + more]


def _rounded_up(value: float) -> str:
    """The value in decimal form, rounded up to DIGITS significant digits."""
    decimals = max(0, DIGITS - 1 - math.floor(math.log10(value))) if value else 0
    text = f"{ceil_count(value * 10.0**decimals) / 10.0**decimals:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text
