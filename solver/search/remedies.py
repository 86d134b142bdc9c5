"""Changes of an instance without a plan that would give it one: each is tried by an exact search.

A search that `stop` ends early knows less: None for "is there a plan?", and `exact=False` for a
least value, which is then a value that suffices.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from formulations.costs.renting import rent_usd_per_hour
from formulations.instance import Instance
from formulations.instance.cluster import has_flash
from formulations.instance.profile import covered_degrees
from formulations.instance.target import RULES
from formulations.launch import runs
from formulations.plan import PARAMETERS_SPLIT, Shape
from formulations.slot_degrees import powers_of_two
from formulations.space import group_degrees, node_vectors, shapes, shapes_of
from formulations.units import GIB, NANOSECONDS_PER_SECOND
from solver.heuristics.choose import TimeTables
from solver.layered.problem import Intervals
from solver.result import max_step_time_ns, price_usd_per_hour
from solver.search.closing import MOST_GAP, Stop, enumerate_shape, lacks_memory
from solver.search.cutoffs import ANY_TIME

#: Memory is added to every GPU in steps of this size, up to a size at which every plan fits.
MEMORY_STEP_GIB = 1 / 16
_MOST_STEPS = 1 << 20


@dataclass(frozen=True)
class Least:
    """A value with which there is a plan; `exact`: there is none with less."""

    value: float
    exact: bool


def changed(instance: Instance, part: str, **fields: object) -> Instance:
    """The instance with other fields of its `search` or `limits`."""
    section = getattr(instance, part).model_copy(update=fields)
    return instance.model_copy(update={part: section})


def with_memory(instance: Instance, extra_gib: float) -> Instance:
    """The instance with this much more memory on every GPU."""
    groups = []
    for group in instance.cluster.groups:
        more = {"memory_bytes": group.gpu.memory_bytes + round(extra_gib * GIB)}
        groups.append(group.model_copy(update={"gpu": group.gpu.model_copy(update=more)}))
    cluster = instance.cluster.model_copy(update={"groups": tuple(groups)})
    return instance.model_copy(update={"cluster": cluster})


def has_plan(instance: Instance, stop: Stop, among: Iterable[Shape] | None = None) -> bool | None:
    """Whether some shape (of `among`, else of all) has a plan; None: unknown when stopped."""
    times = TimeTables(instance)
    complete = True
    for shape in shapes(instance) if among is None else among:
        if stop():
            return None
        intervals = Intervals(times.costs(shape))
        if lacks_memory(intervals):
            continue
        cutoff = _cutoff(instance, shape)
        gap = MOST_GAP if cutoff == ANY_TIME else 0.0
        answer = enumerate_shape(intervals, cutoff, gap, stop)
        if answer.plan is not None:
            return True
        complete &= answer.complete
    return False if complete else None


def fits_optimistically(instance: Instance, stop: Stop) -> bool:
    """Whether a shape would fit if all GPUs were as large as the largest; True when stopped."""
    times = TimeTables(instance)
    return any(
        stop() or not lacks_memory(Intervals(times.costs(shape))) for shape in shapes(instance)
    )


def memory_bound_gib(instance: Instance, stop: Stop) -> float:
    """Extra memory per GPU, in whole steps, with less of which there is no plan."""

    def fits(steps: int) -> bool:
        return fits_optimistically(with_memory(instance, steps * MEMORY_STEP_GIB), stop)

    return _least_step(0, fits) * MEMORY_STEP_GIB


def least_memory_gib(instance: Instance, bound_gib: float, stop: Stop) -> Least | None:
    """Least extra memory per GPU with which there is a plan, in whole steps; None: none is known.

    More memory never takes a plan away. With less than `bound_gib` there is none, see
    `memory_bound_gib`; from there on the numbers of steps are tried exactly.
    """

    def answer(steps: int) -> bool | None:
        return has_plan(with_memory(instance, steps * MEMORY_STEP_GIB), stop)

    low = high = max(1, round(bound_gib / MEMORY_STEP_GIB))
    if not answer(_MOST_STEPS):
        return None
    while (found := answer(high)) is False:
        low, high = high + 1, min(2 * high, _MOST_STEPS)
    if found is None:
        return None
    unknown: list[int] = []

    def suffices(steps: int) -> bool:
        found = answer(steps)
        unknown.extend([steps] if found is None else [])
        return bool(found)

    return Least(_least_step(low, suffices, high) * MEMORY_STEP_GIB, exact=not unknown)


def _least_step(low: int, holds: Callable[[int], bool], high: int = _MOST_STEPS) -> int:
    """Least number from `low` to `high` for which `holds`, which is so for `high` and upwards."""
    while low < high:
        middle = min((low + high) // 2, 2 * low + 1)
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high


def least_step_time_s(instance: Instance, stop: Stop) -> Least | None:
    """Shortest step time of a plan within the other limits; None: none is known."""
    without = changed(instance, "limits", max_step_time_s=None)
    return _least_objective(without, lambda _: 1 / NANOSECONDS_PER_SECOND, stop)


def least_cost_usd(instance: Instance, stop: Stop) -> Least | None:
    """Least money per step of a plan within the other limits; None: none is known."""
    without = changed(instance, "limits", max_cost_usd_per_step=None)

    def usd_per_ns(shape: Shape) -> float:
        return price_usd_per_hour(instance, shape) / 3600 / NANOSECONDS_PER_SECOND

    return _least_objective(without, usd_per_ns, stop)


def least_rent(instance: Instance, stop: Stop) -> Least | None:
    """Lowest price per hour, in USD, of nodes that a plan can use; None: none is known."""
    without = changed(instance, "limits", max_price_usd_per_hour=None)
    rents = {used: rent_usd_per_hour(instance, used) for used in node_vectors(without)}
    sure = True
    for used in sorted(rents, key=lambda used: rents[used]):
        found = has_plan(without, stop, shapes_of(without, used))
        if found:
            return Least(rents[used], sure)
        sure &= found is False
    return None


def _least_objective(
    instance: Instance, weight: Callable[[Shape], float], stop: Stop
) -> Least | None:
    """Least step time in ns times weight over all plans; shapes by their closed-form bound."""
    times = TimeTables(instance)
    space = list(shapes(instance))
    forms = times.forms(space)
    ranked = [
        (form.bound_ns * weight(shape), shape) for form, shape in zip(forms, space, strict=True)
    ]
    best = math.inf
    exact = True
    for bound, shape in sorted(ranked, key=lambda pair: pair[0]):
        if bound >= best:
            break
        if stop():
            return None if best == math.inf else Least(best, exact=False)
        intervals, factor = Intervals(times.costs(shape)), weight(shape)
        if lacks_memory(intervals):
            continue
        cutoff = _cutoff(instance, shape)
        if factor and best < math.inf:
            cutoff = min(cutoff, math.ceil(best / factor))
        answer = enumerate_shape(intervals, cutoff, 0.0, stop)
        exact &= answer.complete
        if answer.step_time_ns is not None:
            best = min(best, answer.step_time_ns * factor)
    return None if best == math.inf else Least(best, exact)


def _cutoff(instance: Instance, shape: Shape) -> int:
    """The least step time that is beyond the limits."""
    limit = max_step_time_ns(instance, shape)
    return ANY_TIME if limit is None else limit + 1


def relaxations(instance: Instance) -> Iterator[tuple[str, Instance]]:
    """Choices that the instance leaves out, each as a text and as the instance that allows it.

    With another launch target where the instance's cannot run them.
    """
    for text, wider in _relaxed(instance):
        target = next(one for one in (instance.search.target, *RULES) if runs(one, wider.search))
        if target == instance.search.target:
            yield text, wider
        else:
            yield f"{text} with search.target: {target}", changed(wider, "search", target=target)


def _relaxed(instance: Instance) -> Iterator[tuple[str, Instance]]:
    """The same, whoever can run it."""
    search = instance.search
    if "full" not in search.recompute:
        both = (*search.recompute, "full")
        yield "search.recompute: full", changed(instance, "search", recompute=both)
    if "selective" not in search.recompute and not instance.workload.flash_attention:
        more_modes = (*search.recompute, "selective")
        yield "search.recompute: selective", changed(instance, "search", recompute=more_modes)
    if instance.profile is None:
        yield from _unmeasured(instance)
    if max(search.zero) < 1:
        yield "search.zero: 1", changed(instance, "search", zero=(*search.zero, 1))
    if max(search.zero) < PARAMETERS_SPLIT and search.micro_batches == "even":
        every = tuple(range(PARAMETERS_SPLIT + 1))
        yield "search.zero: 3", changed(instance, "search", zero=every)
    if search.micro_batch is not None and 1 not in search.micro_batch:
        more = (1, *search.micro_batch)
        yield "1 in search.micro_batch", changed(instance, "search", micro_batch=more)
    if search.micro_batches == "even":
        yield "search.micro_batches: uneven", changed(instance, "search", micro_batches="uneven")
    for name in ("data_parallel", "pipeline_parallel"):
        if getattr(search, name) is not None:
            yield f"no search.{name}", changed(instance, "search", **{name: None})
    more_degrees = _more_degrees(instance)
    if more_degrees:
        text = f"{', '.join(map(str, more_degrees))} in search.tensor_parallel"
        degrees = (*(search.tensor_parallel or ()), *more_degrees)
        yield text, changed(instance, "search", tensor_parallel=degrees)
    if not search.idle_nodes:
        yield "search.idle_nodes: true", changed(instance, "search", idle_nodes=True)
    if not search.embedding_only_stages:
        text = "search.embedding_only_stages: true"
        yield text, changed(instance, "search", embedding_only_stages=True)


def _unmeasured(instance: Instance) -> Iterator[tuple[str, Instance]]:
    """Strategies that a profile would have to be measured with."""
    if not instance.search.sequence_parallel and _splits_sequence(instance):
        text = "search.sequence_parallel: true"
        yield text, changed(instance, "search", sequence_parallel=True)
    if not instance.workload.flash_attention and has_flash(
        instance.cluster, instance.workload.precision
    ):
        flash = {"workload": instance.workload.with_flash()}
        yield "workload.flash_attention: true", instance.model_copy(update=flash)


def _splits_sequence(instance: Instance) -> bool:
    """Whether there are tensor groups of several GPUs, all of which divide the sequence."""
    vectors = node_vectors(instance)
    known = {own for used in vectors for all_ in group_degrees(instance, used) for own in all_}
    degrees = {own.tp for own in known if own.tp > 1}
    return bool(degrees) and all(instance.workload.sequence_length % tp == 0 for tp in degrees)


def _more_degrees(instance: Instance) -> list[int]:
    """Powers of two that the list of tensor-parallel degrees leaves out and that could be used."""
    given = instance.search.tensor_parallel
    if given is None:
        return []
    largest = max(group.gpus_per_node for group in instance.cluster.groups)
    heads = instance.workload.kv_heads
    more = [tp for tp in powers_of_two(largest) if tp not in given and heads % tp == 0]
    if instance.profile is None:
        return more
    kinds = list(dict.fromkeys(run.layer.kind for run in instance.workload.layer_runs))
    return covered_degrees(instance.profile, kinds, instance.cluster, more)
