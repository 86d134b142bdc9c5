"""Values of the node that covers a slot, as sums over starts: exactly one of them holds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import pulp

from formulations.costs.tables import CostTables
from formulations.costs.transfers import RingRate
from formulations.decisions import Start
from formulations.milp.big_m import largest_value
from formulations.milp.terms import Linear, Literal, maximum, total_of, weighted

Value = TypeVar("Value", float, RingRate)


class Covering:
    """`starts`: per slot those whose node covers it."""

    def __init__(
        self, model: pulp.LpProblem, tables: CostTables, start: Mapping[Start, pulp.LpVariable]
    ) -> None:
        self.model, self.start, self._dp = model, start, tables.shape.dp
        sizes = tables.slots_per_node
        self.starts = [
            [(j, a) for j, a in start if a <= s < a + sizes[j]] for s in range(tables.shape.slots)
        ]

    def slots(self, stage: int) -> range:
        """Slots of a stage."""
        return range(stage * self._dp, (stage + 1) * self._dp)

    def _chosen(self, slot: int, value: Callable[[Start], int]) -> Linear:
        """The number of the node that covers a slot."""
        covering = self.starts[slot]
        return weighted([value(key) for key in covering], [self.start[key] for key in covering])

    def largest(
        self,
        number: int,
        slots: Iterable[int],
        value: Callable[[Start], int],
        name: str,
        others: Sequence[Linear] = (),
    ) -> Linear:
        """Largest number of the nodes that cover some slots, and of other terms."""
        terms = [self._chosen(slot, value) for slot in slots]
        upper = max(largest_value(term) for term in (*terms, *others))
        return maximum(self.model, number, [*terms, *others], name, upper)

    def by_value(self, slot: int, value: Callable[[Start], Value]) -> dict[Value, Literal]:
        """Values of the nodes that may cover a slot, and whether they do."""
        literals: dict[Value, list[Literal]] = {}
        for key in self.starts[slot]:
            literals.setdefault(value(key), []).append(self.start[key])
        return {one: total_of(*own) for one, own in sorted(literals.items())}
