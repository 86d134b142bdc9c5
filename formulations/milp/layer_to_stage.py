"""Which layers each stage runs: the split of a model, where it is free.

Sets. Stages k < S (virtual ones where devices have several chunks), layers l < L.
Parameters. Runs of layers that every stage may be, `runs.possible_runs`: within memory and the
limit on step time.
Variables. begun[k][l], 0 < k < S, binary: stage k starts at layer l or before it; constant where
the runs decide it, begun[0] = 1, begun[S] = 0. Layer l is on stage k iff
begun[k][l] - begun[k+1][l] = 1. total[k][v]: a stage's sum of one table of values per layer.
Objective. Step time, with the rest of the constraints: `step_time`.
Constraints.
(6) begun[k][l] <= begun[k][l+1].
(7) begun[k+1][next(e) - 1] <= begun[k][e - 1]: a stage that starts after layer e - 1 ends at
    next(e + 1) or later, the least end with one layer and `min_blocks` blocks, so what starts
    before next(e) comes after a stage that started before e.
(8) total[k][v] = sum over l of v[l] (begun[k][l] - begun[k+1][l]).
Assumptions. Stages are contiguous and shared by all replicas.
Size. O(S L) binary variables and rows, one variable and one row of O(L) terms per sum.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pulp

from formulations.costs.tables import Array, CostTables
from formulations.decisions import least_end
from formulations.milp.big_m import Intervals, interval_sums
from formulations.milp.parts import Values
from formulations.milp.runs import possible_runs
from formulations.milp.terms import (
    Linear,
    Literal,
    binary,
    duration,
    forbid,
    require_at_most,
    require_equal,
    weighted,
)


class SplitVariables:
    """A free split: `begun[k][l]`, see the header."""

    def __init__(
        self,
        model: pulp.LpProblem,
        tables: CostTables,
        least_share: int = 1,
        max_step_time_ns: int | None = None,
    ) -> None:
        self.model = model
        self.num_layers, self.num_stages = tables.num_layers, tables.shape.num_stages
        self._runs = possible_runs(tables, least_share, max_step_time_ns)
        if not all(len(runs) for runs in self._runs):
            forbid(model, 7)
        self._least_ends = [least_end(tables, start) for start in range(tables.num_layers)]
        self._begun = [
            [self._literal(k, layer) for layer in range(tables.num_layers)]
            for k in range(1, self.num_stages)
        ]
        self._totals: dict[tuple[int, bytes], Linear] = {}
        self._add_constraints()

    def _literal(self, stage: int, layer: int) -> Literal:
        starts = self._runs[stage][:, 0]
        if not len(starts) or layer < starts.min():
            return 0
        return 1 if layer >= starts.max() else binary(self.model, f"begun_{stage}_{layer}")

    def _add_constraints(self) -> None:
        for row in self._begun:
            for first, second in pairwise(row):
                self._imply(6, first, second)
        for row, following in pairwise(self._begun):
            for start in range(1, self.num_layers):
                end = self._least_ends[start]
                if end <= self.num_layers:
                    self._imply(7, following[end - 1], row[start - 1])

    def _imply(self, number: int, first: Literal, second: Literal) -> None:
        if first is not second and not (isinstance(first, int) and isinstance(second, int)):
            require_at_most(self.model, number, first, second)

    def begun(self, stage: int, layer: int) -> Literal:
        """Whether a stage starts at a layer or before it; stage S never does."""
        if 0 < stage < self.num_stages:
            return self._begun[stage - 1][layer]
        return int(stage <= 0)

    def intervals(self, stage: int) -> Intervals:
        """Runs of layers that the stage may be."""
        return self._runs[stage]

    def stage_sum(self, stage: int, values: Array) -> Linear:
        """Sum of `values` [L] over the layers of a stage."""
        key = (stage, values.tobytes())
        if key not in self._totals:
            self._totals[key] = self._total(stage, values)
        return self._totals[key]

    def sum_up_to(self, stage: int, values: Array) -> Linear:
        """Sum of `values` [L] over the layers of all stages up to this one."""
        layers = np.flatnonzero(values).tolist()
        later = [self.begun(stage + 1, layer) for layer in layers]
        sizes = [int(values[layer]) for layer in layers]
        return weighted([sum(sizes), *(-size for size in sizes)], [1, *later])

    def _total(self, stage: int, values: Array) -> Linear:
        """(8)."""
        layers = range(self.num_layers)
        literals = [self.begun(k, layer) for k in (stage, stage + 1) for layer in layers]
        total = weighted([*values.tolist(), *(-values).tolist()], literals)
        if isinstance(total, int):
            return total
        most = int(interval_sums(self.intervals(stage), values).max(initial=0))
        variable = duration(self.model, f"total_{stage}_{len(self._totals)}", most)
        require_equal(self.model, 8, variable, total)
        return variable

    def assignment(self, boundaries: Sequence[int]) -> Iterator[tuple[pulp.LpVariable, int]]:
        """The binary variables of a split."""
        for start, row in zip(boundaries[1:-1], self._begun, strict=True):
            for layer, literal in enumerate(row):
                if not isinstance(literal, int):
                    yield literal, int(layer >= start)

    def extract(self, values: Values) -> tuple[int, ...]:
        """Boundaries in a solution."""
        starts = [
            self.num_layers - sum(x if isinstance(x, int) else values[x.name] for x in row)
            for row in self._begun
        ]
        return (0, *starts, self.num_layers)
