"""How many micro-batches each replica gets: the shares of a model, where they are free.

Sets. Replicas r < R = dp; counts q.
Parameters. M micro-batches per step; 1 <= low <= m_r <= high, see `decisions.share_range`.
Variables. reached[r][q], low < q <= high, binary: m_r >= q, so m_r = low + sum of its row.
Objective. Step time, with the rest of the constraints: `step_time`.
Constraints.
(9)  reached[r][q+1] <= reached[r][q].
(10) sum over r of m_r = M.
(11) Symmetry: of replicas with equal groups and transfers, earlier ones get no fewer.
Assumptions. The plan space allows uneven shares; even shares are no decision.
Left out. Shares above `high`: the caller proves that they lead nowhere.
Size. O(R (high - low)) binary variables and rows.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

import pulp

from formulations.costs.tables import CostTables
from formulations.milp.parts import Order, Values
from formulations.milp.terms import (
    Literal,
    binary,
    forbid,
    require_at_most,
    require_equal,
    total_of,
)


class ShareVariables:
    """Free shares: `reached[r][q]`, see the header."""

    def __init__(
        self, model: pulp.LpProblem, tables: CostTables, order: Order, shares: range
    ) -> None:
        self.model = model
        self.range = shares
        self._rows = [
            [binary(model, f"reached_{r}_{q}") for q in shares[1:]] for r in range(tables.shape.dp)
        ]
        for row in self._rows:
            for less, more in pairwise(row):
                require_at_most(model, 9, more, less)
        if not shares:
            forbid(model, 10)
            return
        spare = tables.num_micro_batches - tables.shape.dp * shares[0]
        require_equal(model, 10, total_of(*(one for row in self._rows for one in row)), spare)
        self._break_symmetry(order)

    def _break_symmetry(self, order: Order) -> None:
        """(11) Between neighbours in every class of equal columns."""
        classes: dict[Hashable, list[list[pulp.LpVariable]]] = {}
        for r, row in enumerate(self._rows):
            classes.setdefault(order.column(r), []).append(row)
        for rows in classes.values():
            for first, second in pairwise(rows):
                for more, less in zip(first, second, strict=True):
                    require_at_most(self.model, 11, less, more)

    def choices(self, replica: int) -> Sequence[int]:
        """Shares that a replica may have, ascending."""
        return self.range

    def at_least(self, replica: int, count: int) -> Literal:
        """Whether a replica has `count` micro-batches or more."""
        if not self.range or count > self.range[-1]:
            return 0
        if count <= self.range[0]:
            return 1
        return self._rows[replica][count - self.range[0] - 1]

    def assignment(self, micro_batches: Sequence[int]) -> Iterator[tuple[pulp.LpVariable, int]]:
        """The binary variables of shares; (11) may ask for equal replicas the other way round."""
        for row, share in zip(self._rows, micro_batches, strict=True):
            for q, variable in zip(self.range[1:], row, strict=True):
                yield variable, int(share >= q)

    def extract(self, values: Values) -> tuple[int, ...]:
        """Shares in a solution."""
        return tuple(
            self.range[0] + sum(values[variable.name] for variable in row) for row in self._rows
        )
