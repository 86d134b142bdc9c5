"""Megatron-LM's rank groups: which ranks communicate in which dimension.

The order names the dimensions from the fastest to the slowest, as `tp-cp-ep-dp-pp`. Experts have
a grid of their own over the same ranks: their tensor parallelism, ep, and the data parallelism
that is left; other layers have one with ep = 1.
"""

from collections.abc import Mapping
from itertools import product

DEFAULT_ORDER = "tp-cp-ep-dp-pp"  #: stages are contiguous


def rank_groups(
    sizes: Mapping[str, int], dimensions: str, order: str = DEFAULT_ORDER
) -> list[list[int]]:
    """Groups along some dimensions, such as `tp`, `dp-cp`; dimensions without a size have 1.

    Ranks inside a group, and groups, are in the order of the dimensions.
    """
    names = order.split("-")
    strides, stride = {}, 1
    for name in names:
        strides[name] = stride
        stride *= sizes.get(name, 1)
    chosen = set(dimensions.split("-"))
    inside = _offsets([name for name in names if name in chosen], sizes, strides)
    outside = _offsets([name for name in names if name not in chosen], sizes, strides)
    return [[base + offset for offset in inside] for base in outside]


def _offsets(names: list[str], sizes: Mapping[str, int], strides: Mapping[str, int]) -> list[int]:
    """Sums of strides over all coordinates, the first dimension fastest."""
    axes = [range(sizes.get(name, 1)) for name in reversed(names)]
    slow_first = [strides[name] for name in reversed(names)]
    return [
        sum(at * stride for at, stride in zip(place, slow_first, strict=True))
        for place in product(*axes)
    ]
