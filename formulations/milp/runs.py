"""Runs of layers [start, end) that a stage may be, whatever owns it; Big-Ms look no further."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from formulations.costs.stage_costs import NEVER, StageCosts
from formulations.costs.tables import Array, CostTables

Mask = NDArray[np.bool_]


def _sums(values: Array) -> Array:
    """[L + 1, L + 1] sum of `values` [L] over [start, end); negative where end < start."""
    before = np.concatenate([[0], values.cumsum()])
    sums: Array = before[None, :] - before[:, None]
    return sums


def _allowed(stages: StageCosts, stage: int, least_share: int, limit_ns: int | None) -> Mask:
    """Runs of enough blocks that fit some group used and the limit on step time.

    With several chunks per device each has to fit alone. A stage works on each of its
    micro-batches, one after the other: no step is shorter than the least share times the run's
    forward and backward on the group that is fastest at it.
    """
    tables = stages.tables
    layers = np.arange(tables.num_layers + 1)
    allowed: Mask = (_sums(np.diff(tables.blocks_before)) >= tables.min_blocks) & (
        layers[None, :] > layers[:, None]
    )
    extra = [stages.extra(j, stage, least_share) for j in tables.roomiest]
    allowed &= np.min(extra, axis=0) < NEVER
    if limit_ns is not None:
        fastest = np.min([_sums(tables.work_ns[:, j]) for j in tables.used], axis=0)
        allowed &= least_share * fastest <= limit_ns
    return allowed


def possible_runs(
    tables: CostTables, least_share: int = 1, limit_ns: int | None = None
) -> list[Array]:
    """[S] of [N, 2] starts and ends, ascending, of runs that some split gives to each stage.

    Splits within memory, and within a limit on step time if there is one, if no replica has fewer
    micro-batches than `least_share`. Empty for every stage if there is no such split.
    """
    costs, stages = StageCosts(tables), range(tables.shape.num_stages)
    masks = [_allowed(costs, k, least_share, limit_ns) for k in stages]
    starts = _reached(masks, 0)
    ends = _reached([mask.T for mask in reversed(masks)], tables.num_layers)[::-1]
    return [np.argwhere(masks[k] & starts[k][:, None] & ends[k][None, :]) for k in stages]


def _reached(masks: Sequence[Mask], first: int) -> list[Mask]:
    """[S] of [L + 1] boundaries that a chain from `first` reaches before each stage."""
    reached: Mask = np.arange(len(masks[0])) == first
    chain = []
    for mask in masks:
        chain.append(reached)
        reached = np.logical_or.reduce(mask[reached], axis=0)
    return chain
