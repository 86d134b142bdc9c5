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
from itertools import chain, pairwise

from formulations.costs.tables import CostTables
from formulations.decisions import Given, even_shares, share_range
from formulations.models.model import Linear, Literal, Model, Pairs, Solution, total_of
from formulations.models.node_order import Order


class Shares:
    """`reached[r][q]`, see the header; no variables of shares that are given, or even."""

    def __init__(self, model: Model, tables: CostTables, order: Order, given: Given) -> None:
        shares = given.micro_batches
        if shares is None and tables.instance.search.micro_batches == "even":
            shares = even_shares(tables)
        free = share_range(tables, given.largest_share)
        #: [r] shares that a replica may have, ascending.
        self.choices = [free] * tables.config.dp
        if shares is not None:
            self.choices = [range(share, share + 1) for share in shares]
        self._rows = [
            [model.literal(f"reached_{r}_{q}") for q in choices[1:]]
            for r, choices in enumerate(self.choices)
        ]
        for row in self._rows:
            for fewer, more in pairwise(row):
                model.implies(9, more, fewer)
        if not all(self.choices):
            model.some_of(10, ())
            return
        spare = tables.num_micro_batches - sum(choices[0] for choices in self.choices)
        model.equal(10, total_of(*chain.from_iterable(self._rows)), spare)
        alike: dict[Hashable, list[list[Linear]]] = {}
        for r, row in enumerate(self._rows):
            alike.setdefault(order.column(r), []).append(row)
        for rows in alike.values():
            for earlier, later in pairwise(rows):
                for first, second in zip(earlier, later, strict=True):
                    model.implies(11, second, first)

    def at_least(self, replica: int, count: int) -> Literal:
        """Whether a replica has `count` micro-batches or more."""
        choices = self.choices[replica]
        if not choices or count > choices[-1]:
            return 0
        if count <= choices[0]:
            return 1
        return self._rows[replica][count - choices[0] - 1]

    def assignment(self, micro_batches: Sequence[int]) -> Pairs:
        """The literals of shares; (11) may ask for equal replicas the other way round."""
        for choices, row, share in zip(self.choices, self._rows, micro_batches, strict=True):
            for q, literal in zip(choices[1:], row, strict=True):
                yield literal, int(share >= q)

    def extract(self, solution: Solution) -> tuple[int, ...]:
        """Shares in a solution."""
        pairs = zip(self.choices, self._rows, strict=True)
        return tuple(choices[0] + sum(map(solution.value, row)) for choices, row in pairs)
