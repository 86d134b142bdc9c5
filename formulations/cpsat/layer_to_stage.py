"""Which layers each stage runs: the split of a model, where it is free.

Sets. Stages k < S (virtual ones where devices have several chunks), layers l < L.
Parameters. Numbers of blocks before each layer; at least `min_blocks` blocks per stage.
Variables. after[k][l], k < S - 1: layer l lies on a stage after k. Stage k ends before the first
such layer; layer l is on stage k iff after[k-1][l] - after[k][l] = 1, with after[-1] = 1 and
after[S-1] = 0, so sums over a stage are differences of sums over its two rows.
Objective. Step time, with the rest of the constraints: `step_time`.
Constraints.
(6) after[k][l] <= after[k][l+1]: the layers of stages 0..k come first.
(7) after[k+1][next(e) - 1] <= after[k][e - 1]: stage k + 1 starting at layer e or later ends at
    next(e) or later, the least end with one layer and `min_blocks` blocks. Literals that the
    stages before or behind decide are constants, and there is no solution without room for all.
(8) Largest workspace of a device: for every chunk k of it and every run [a, b) of layers with
    equal workspace v, workspace >= v (after[k-1][b-1] - after[k][a]): is 1 iff the stage meets it.
Assumptions. Stages are contiguous and shared by all replicas.
Size. O(S L) binary variables, O(S L) implications.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise, product

import numpy as np
from ortools.sat.python import cp_model

from formulations.costs.tables import Array, CostTables
from formulations.cpsat.terms import Linear, Literal, value_of, weighted
from formulations.decisions import boundary_ranges, least_end


class SplitVariables:
    """A free split: `after[k][l]`, see the header."""

    def __init__(self, model: cp_model.CpModel, tables: CostTables) -> None:
        self.model = model
        self.num_layers = tables.num_layers
        ends = boundary_ranges(tables)[1:]
        if ends[-1][0] > tables.num_layers:
            model.add_bool_or([])
        self.after = [
            [self._literal(k, layer, *ends[k]) for layer in range(tables.num_layers)]
            for k in range(tables.shape.num_stages - 1)
        ]
        self._add_constraints(tables)

    def _literal(self, k: int, layer: int, earliest: int, latest: int) -> Literal:
        if layer < earliest:
            return 0
        return 1 if layer >= latest else self.model.new_bool_var(f"after[{k}][{layer}]")

    def _add_constraints(self, tables: CostTables) -> None:
        for row in self.after:
            for first, second in pairwise(row):
                self._imply(first, second)  # (6)
        for row, following in pairwise(self.after):
            for start in range(1, self.num_layers + 1):
                end = least_end(tables, start)
                if end <= self.num_layers:
                    self._imply(following[end - 1], row[start - 1])  # (7)

    def _imply(self, first: Literal, second: Literal) -> None:
        if first is not second and not (isinstance(first, int) and isinstance(second, int)):
            self.model.add_implication(first, second)

    def _row(self, stage: int) -> Sequence[Literal]:
        if 0 <= stage < len(self.after):
            return self.after[stage]
        return [int(stage < 0)] * self.num_layers

    def begun(self, stage: int, layer: int) -> Literal:
        """Whether a stage starts at a layer or before it: the layer is on it or a later one."""
        return self._row(stage - 1)[layer]

    def stage_sum(self, stage: int, values: Array) -> Linear:
        """Sum of `values` [L] over the layers of a stage."""
        literals = [*self._row(stage - 1), *self._row(stage)]
        return weighted([*values.tolist(), *(-values).tolist()], literals)

    def sum_up_to(self, stage: int, values: Array) -> Linear:
        """Sum of `values` [L] over the layers of all stages up to this one."""
        literals = [*self._row(-1), *self._row(stage)]
        return weighted([*values.tolist(), *(-values).tolist()], literals)

    def largest(self, stages: Iterable[int], values: Array) -> Linear:
        """At least every one of `values` [L] >= 0 over the layers of some stages: (8)."""
        if not values.any():
            return 0
        largest = self.model.new_int_var(0, int(values.max()), f"largest[{stages}]")
        starts = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist()]
        runs = list(zip(starts, [*starts[1:], len(values)], strict=True))
        for stage, (start, end) in product(stages, runs):
            value = int(values[start])
            literals = [self._row(stage - 1)[end - 1], self._row(stage)[start]]
            self.model.add(largest >= weighted([value, -value], literals))
        return largest

    def hint(self, boundaries: Sequence[int]) -> None:
        """Suggest a split."""
        for end, row in zip(boundaries[1:-1], self.after, strict=True):
            for layer, literal in enumerate(row):
                if not isinstance(literal, int):
                    self.model.add_hint(literal, int(layer >= end))

    def extract(self, values: Sequence[float]) -> tuple[int, ...]:
        """Boundaries in a solution."""
        ends = [
            self.num_layers - sum(value_of(literal, values) for literal in row)
            for row in self.after
        ]
        return (0, *ends, self.num_layers)
