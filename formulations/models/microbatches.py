"""How many micro-batches each replica gets: the shares of a model, free or given.

Sets. Replicas r < R = dp; counts q.
Parameters. M micro-batches per step; 1 <= low <= m_r <= high, see `decisions.share_range`.
Variables. reached[r][q], low < q <= high: m_r >= q, so m_r = low + sum of its row.
Objective. Step time, with the rest of the constraints: `step_time`.
Constraints.
(9)  reached[r][q+1] <= reached[r][q].
(10) sum over r of m_r = M.
(11) Symmetry: of replicas with equal groups and transfers, earlier ones get no fewer.
Assumptions. The plan space allows uneven shares; even shares are no decision.
Left out. Shares above `high`: the caller proves that they lead nowhere.
Size. O(R (high - low)) literals and rows.
"""

from collections.abc import Hashable, Sequence
from itertools import pairwise

from formulations.costs.tables import CostTables
from formulations.decisions import Given, even_shares, share_range
from formulations.models.model import Linear, Literal, Model, Pairs, Solution, total_of
from formulations.models.node_order import Order


class Shares:
    """`reached[r][q]`, see the header; no variables of given shares."""

    def __init__(
        self, model: Model, tables: CostTables, order: Order, shares: range | Sequence[int]
    ) -> None:
        """shares: the range of free ones; or one share per replica."""
        self._given = None if isinstance(shares, range) else tuple(shares)
        self._range = shares if isinstance(shares, range) else range(0)
        self._rows = list[list[Linear]]()
        if not isinstance(shares, range):
            return
        self._rows = [
            [model.literal(f"reached_{r}_{q}") for q in self._range[1:]]
            for r in range(tables.config.dp)
        ]
        for row in self._rows:
            for fewer, more in pairwise(row):
                model.implies(9, more, fewer)
        if not self._range:
            model.some_of(10, ())
            return
        spare = tables.num_micro_batches - tables.config.dp * self._range[0]
        model.equal(10, total_of(*(literal for row in self._rows for literal in row)), spare)
        alike: dict[Hashable, list[list[Linear]]] = {}
        for r, row in enumerate(self._rows):
            alike.setdefault(order.column(r), []).append(row)
        for rows in alike.values():
            for earlier, later in pairwise(rows):
                for first, second in zip(earlier, later, strict=True):
                    model.implies(11, second, first)

    def choices(self, replica: int) -> Sequence[int]:
        """Shares that a replica may have, ascending."""
        return self._range if self._given is None else (self._given[replica],)

    def at_least(self, replica: int, count: int) -> Literal:
        """Whether a replica has `count` micro-batches or more."""
        choices = self.choices(replica)
        if not choices or count > choices[-1]:
            return 0
        if count <= choices[0]:
            return 1
        return self._rows[replica][count - choices[0] - 1]

    def assignment(self, micro_batches: Sequence[int]) -> Pairs:
        """The literals of shares; (11) may ask for equal replicas the other way round."""
        for row, share in zip(self._rows, micro_batches, strict=False):
            for q, literal in zip(self._range[1:], row, strict=True):
                yield literal, int(share >= q)

    def extract(self, solution: Solution) -> tuple[int, ...]:
        """Shares in a solution."""
        if self._given is not None:
            return self._given
        return tuple(self._range[0] + sum(map(solution.value, row)) for row in self._rows)


def shares_part(model: Model, tables: CostTables, order: Order, given: Given) -> Shares:
    """The shares, as far as they are not given, or even, free."""
    if given.micro_batches is not None:
        return Shares(model, tables, order, tuple(given.micro_batches))
    if tables.instance.search.micro_batches == "even":
        return Shares(model, tables, order, even_shares(tables))
    return Shares(model, tables, order, share_range(tables, given.largest_share))
