"""How many micro-batches each replica gets: the shares of a model, where they are free.

Sets. Replicas r < R = dp; counts q.
Parameters. M micro-batches per step; 1 <= low <= m_r <= high, see `share_range`.
Variables. at_least[r][q], low < q <= high: m_r >= q, so m_r = low + sum of its row.
Objective. Step time, with the rest of the constraints: `step_time`.
Constraints.
(9)  at_least[r][q+1] <= at_least[r][q].
(10) sum over r of m_r = M.
(11) Symmetry: of replicas with equal groups and transfers, earlier ones get no fewer.
Assumptions. The plan space allows uneven shares; even shares are no decision.
Left out. Shares above `high`: the caller proves that they lead nowhere.
Size. O(R (high - low)) binary variables and implications.
"""

from collections.abc import Hashable, Sequence
from itertools import pairwise

from ortools.sat.python import cp_model

from formulations.costs.tables import CostTables
from formulations.cpsat.parts import Order
from formulations.cpsat.terms import Literal, value_of, weighted


class ShareVariables:
    """Free shares: `at_least(r, q)`, see the header."""

    def __init__(
        self, model: cp_model.CpModel, tables: CostTables, order: Order, shares: range
    ) -> None:
        self.model = model
        self.range = shares
        self._literals = [
            [model.new_bool_var(f"at_least[{r}][{q}]") for q in shares[1:]]
            for r in range(tables.shape.dp)
        ]
        for row in self._literals:
            for less, more in pairwise(row):
                model.add_implication(more, less)  # (9)
        if not shares:
            model.add_bool_or([])
            return
        spare = tables.num_micro_batches - tables.shape.dp * shares[0]
        literals = [literal for row in self._literals for literal in row]
        model.add(weighted([1] * len(literals), literals) == spare)  # (10)
        self._break_symmetry(order)

    def _break_symmetry(self, order: Order) -> None:
        """(11) Between neighbours in every class of equal columns."""
        classes: dict[Hashable, list[list[cp_model.IntVar]]] = {}
        for r, row in enumerate(self._literals):
            classes.setdefault(order.column(r), []).append(row)
        for rows in classes.values():
            for first, second in pairwise(rows):
                for more, less in zip(first, second, strict=True):
                    self.model.add_implication(less, more)

    def choices(self, replica: int) -> Sequence[int]:
        """Shares that a replica may have, ascending."""
        return self.range

    def at_least(self, replica: int, count: int) -> Literal:
        """Whether a replica has `count` micro-batches or more."""
        if not self.range or count > self.range[-1]:
            return 0
        if count <= self.range[0]:
            return 1
        return self._literals[replica][count - self.range[0] - 1]

    def hint(self, micro_batches: Sequence[int]) -> None:
        """Suggest shares; (11) may turn them around among equal replicas."""
        for row, share in zip(self._literals, micro_batches, strict=True):
            for q, literal in zip(self.range[1:], row, strict=True):
                self.model.add_hint(literal, int(share >= q))

    def extract(self, values: Sequence[float]) -> tuple[int, ...]:
        """Shares in a solution."""
        return tuple(
            self.range[0] + sum(value_of(literal, values) for literal in row)
            for row in self._literals
        )
