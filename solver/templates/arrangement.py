"""How the GPUs of one node may be shared among stages.

`aligned`: powers of two at offsets that are multiples of themselves, as links inside a node are
laid out; `any`: all numbers of GPUs in every order.
"""

from collections.abc import Collection
from functools import lru_cache

from formulations.costs.compute import has_times
from formulations.instance import Instance, NodeGroup
from solver.templates.template_options import Split


def _is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0


def degrees_of(instance: Instance, group: NodeGroup, split: Split) -> tuple[int, ...]:
    """Numbers of GPUs that a stage may have on a node of the group, ascending.

    Those that the instance lists and the profile has times for; for any split without a profile,
    all that divide the heads.
    """
    most, heads = group.gpus_per_node, instance.workload.kv_heads
    listed = instance.search.tensor_parallel or tuple(range(1, most + 1))
    if split is Split.ANY and instance.profile is None:
        listed = tuple(range(1, most + 1))
    possible = {g for g in listed if g <= most and heads % g == 0}
    fitting = sorted(g for g in possible if has_times(instance, group, g))
    return tuple(g for g in fitting if split is Split.ANY or _is_power_of_two(g))


def may_start(split: Split, gpus: int, offset: int) -> bool:
    """Whether a stage of so many GPUs may start at this GPU of its node."""
    return split is Split.ANY or offset % gpus == 0


@lru_cache(maxsize=4096)
def ways(split: Split, gpus: int, degrees: tuple[int, ...]) -> tuple[tuple[bool, int, int], ...]:
    """Ways to cut `gpus` GPUs in two: is the first part one stage, GPUs of the first, the second.

    Together with one stage on all of them, and repeated on the parts, they give every
    arrangement: aligned stages never straddle the middle of a power of two.
    """
    if split is Split.ANY:
        return tuple((True, g, gpus - g) for g in degrees if g < gpus)
    if gpus == 1:
        return ()
    first = gpus // 2 if _is_power_of_two(gpus) else 1 << (gpus.bit_length() - 1)
    return ((False, first, gpus - first),)


def filled(gpus: int, degrees: Collection[int], split: Split) -> int:
    """Largest number of GPUs of a node, at most `gpus`, that stages can fill; 0 if none."""
    ends = {0}
    for end in range(1, gpus + 1):
        if any(g <= end and end - g in ends and may_start(split, g, end - g) for g in degrees):
            ends.add(end)
    return max(ends)
