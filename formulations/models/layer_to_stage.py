"""Which layers each stage runs: the split of a model, free or given.

Sets. Stages k < S (virtual ones where devices have several chunks), layers l < L.
Parameters. Runs of layers [start, end) that every stage may be: the one that is given, or
`possible_runs`, within memory and the limit on step time.
Variables. begun[k][l], 0 < k < S: stage k starts at layer l or before it; constant where the runs
decide it, begun[0] = 1, begun[S] = 0. Layer l is on stage k iff begun[k][l] - begun[k+1][l] = 1.
total[k][v]: a stage's sum of one table of values per layer.
Objective. Step time, with the rest of the constraints: `step_time`.
Constraints.
(6) begun[k][l] <= begun[k][l+1].
(7) begun[k+1][next(e) - 1] <= begun[k][e - 1]: a stage that starts after layer e - 1 ends at
    next(e + 1) or later, the least end with one layer and `min_blocks` blocks, so what starts
    before next(e) comes after a stage that started before e.
(8) total[k][v] = sum over l of v[l] (begun[k][l] - begun[k+1][l]).
Assumptions. Stages are contiguous and shared by all replicas.
Size. O(S L) literals and rows, and a sum of O(L) terms for every total.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from formulations.costs.intervals import Mask, interval_sums, sums_before
from formulations.costs.stage_costs import NEVER, StageCosts
from formulations.costs.tables import Array, CostTables
from formulations.decisions import least_ends
from formulations.models.model import (
    Costs,
    Key,
    Literal,
    Model,
    Pairs,
    Solution,
    Term,
    total_of,
    weighted,
)

Runs = Array  #: [N, 2] starts and ends that a stage may have, ascending


def _allowed(stages: StageCosts, stage: int, least_share: int, limit_ns: int | None) -> Mask:
    """Runs of enough blocks that fit a group used and the limit on step time.

    With several chunks per device each has to fit alone. A stage works on each of its
    micro-batches, one after the other: no step is shorter than the least share times the run's
    forward and backward on the group that is fastest at it.
    """
    tables = stages.tables
    layers = np.arange(tables.num_layers + 1)
    allowed: Mask = (interval_sums(np.diff(tables.blocks_before)) >= tables.min_blocks) & (
        layers[None, :] > layers[:, None]
    )
    extra = [stages.extra(j, stage, least_share) for j in tables.roomiest]
    allowed &= np.min(extra, axis=0) < NEVER
    if limit_ns is not None:
        fastest = np.min(
            [interval_sums(tables.work_ns[:, j]) for j in tables.config.groups_used], axis=0
        )
        allowed &= least_share * fastest <= limit_ns
    return allowed


def possible_runs(
    costs: StageCosts, least_share: int = 1, limit_ns: int | None = None
) -> list[Runs]:
    """[S] of [N, 2] starts and ends, ascending, of runs that some split gives to each stage.

    Splits within memory, and within a limit on step time if there is one, if no replica has fewer
    micro-batches than `least_share`. Empty for every stage if there is no such split.
    """
    tables = costs.tables
    stages = range(tables.config.num_stages)
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


def run_sums(runs: Runs, values: Array) -> Array:
    """[N] sum of `values` [L] over each run of layers."""
    before = sums_before(values)
    sums: Array = before[runs[:, 1]] - before[runs[:, 0]]
    return sums


def excess(runs: Runs, first: Array, second: Array) -> int:
    """Most by which a stage's sum of `first` [L] can exceed its sum of `second` [L].

    The least M with sum(first) - M <= sum(second) for every run that the stage may be. 0 if it
    may be none, since nothing has to give way then.
    """
    sums = run_sums(runs, first - second)
    return int(sums.max()) if len(sums) else 0


class Split:
    """`begun[k][l]`, see the header. runs: [S] those that every stage may be."""

    def __init__(self, model: Model, tables: CostTables, runs: Sequence[Runs]) -> None:
        self.model, self.runs = model, runs
        self.num_layers, self.num_stages = tables.num_layers, len(runs)
        if not all(len(stage_runs) for stage_runs in runs):
            model.some_of(7, ())
        self._begun = [
            [self._literal(k, layer) for layer in range(tables.num_layers)]
            for k in range(1, self.num_stages)
        ]
        self._totals: dict[tuple[int, bytes], Term] = {}
        for row in self._begun:
            for first, second in pairwise(row):
                self.model.implies(6, first, second)
        earliest_end = least_ends(tables)
        for row, following in pairwise(self._begun):
            for start in range(1, self.num_layers):
                if (end := earliest_end[start]) <= self.num_layers:
                    self.model.implies(7, following[end - 1], row[start - 1])

    def _literal(self, stage: int, layer: int) -> Literal:
        starts = self.runs[stage][:, 0]
        if not len(starts) or layer < starts.min():
            return 0
        return 1 if layer >= starts.max() else self.model.literal(f"begun_{stage}_{layer}")

    def begun(self, stage: int, layer: int) -> Literal:
        """Whether a stage starts at a layer or before it; stage S never does."""
        if 0 < stage < self.num_stages:
            return self._begun[stage - 1][layer]
        return int(stage <= 0)

    def stage_sum(self, stage: int, values: Array) -> Term:
        """(8) Sum of `values` [L] over the layers of a stage."""
        key = (stage, values.tobytes())
        if key not in self._totals:
            layers = range(self.num_layers)
            literals = [self.begun(k, layer) for k in (stage, stage + 1) for layer in layers]
            total = weighted([*values.tolist(), *(-values).tolist()], literals)
            upper = int(run_sums(self.runs[stage], values).max(initial=0))
            name = f"total_{stage}_{len(self._totals)}"
            self._totals[key] = self.model.defined(8, total, upper, name)
        return self._totals[key]

    def sum_up_to(self, stage: int, values: Array) -> Term:
        """Sum of `values` [L] over the layers of all stages up to this one."""
        layers = np.flatnonzero(values).tolist()
        later = [self.begun(stage + 1, layer) for layer in layers]
        sizes = [int(values[layer]) for layer in layers]
        return weighted([sum(sizes), *(-size for size in sizes)], [1, *later])

    def device_sum(self, stages: Iterable[int], values: Array) -> Term:
        """Sum of `values` [L] over the layers of all chunks of a device."""
        return total_of(*(self.stage_sum(stage, values) for stage in stages))

    def of_layers(self, stages: Sequence[int], times: Mapping[Key, Array]) -> Costs[Key]:
        """Alternatives that cost a sum of values [L] >= 0 over the layers of stages."""
        nothing = np.zeros(self.num_layers, dtype=np.int64)

        def exceed(first: Array, second: Array) -> int:
            return sum(excess(self.runs[stage], first, second) for stage in stages)

        return Costs(
            {key: self.device_sum(stages, values) for key, values in times.items()},
            lambda a, b: exceed(times[a], times[b]),
            {key: exceed(values, nothing) for key, values in times.items()},
        )

    def message_ns(self, tables: CostTables, times_ns: Sequence[int], stage: int) -> Term:
        """Message from a stage to the next: of the times [K], that of the kind it has here.

        The changes of the time from layer to layer add up to it.
        """
        if len(times_ns) == 1:
            return times_ns[0]
        behind = np.array(times_ns)[tables.message_kind[1:]]
        return self.sum_up_to(stage, np.diff(behind, prepend=0))

    def assignment(self, boundaries: Sequence[int]) -> Pairs:
        """The literals of a split."""
        for start, row in zip(boundaries[1:-1], self._begun, strict=True):
            for layer, literal in enumerate(row):
                if not isinstance(literal, int):
                    yield literal, int(layer >= start)

    def extract(self, solution: Solution) -> tuple[int, ...]:
        """Boundaries in a solution."""
        starts = [self.num_layers - sum(map(solution.value, row)) for row in self._begun]
        return (0, *starts, self.num_layers)
