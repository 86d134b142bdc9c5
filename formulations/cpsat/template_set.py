"""The fewest template sizes that cover a range of node counts.

Sets. Node counts N in a range; sizes s, from the least n0 to the largest that leaves room for f
other pipelines of n0.
Parameters. n0, f.
Variables. chosen[s]; count[N][s], 0..N // s: pipelines of s nodes in a sum that makes N.
Objective. Sum of chosen[s].
Constraints.
(1) sum over s of s count[N][s] = N, for every N.
(2) sum over s of count[N][s] >= f + 1, for every N.
(3) count[N][s] <= (N // s) chosen[s].
(4) chosen[n0] = 1 if (f + 1) n0 is in the range: only n0 makes it.
Assumptions. Every size >= n0 has a template.
Left out. What the templates are worth; all sets of one cardinality are alike here.
Size. O(range * sizes) integers and rows.
"""

from collections.abc import Sequence

from ortools.sat.python import cp_model


class Built:
    """The model, its variables, and how to read a solution."""

    def __init__(self, nodes: range, least_size: int, faults: int) -> None:
        self.nodes = nodes
        self.model = cp_model.CpModel()
        self.sizes = range(least_size, max(nodes) - faults * least_size + 1)
        self.chosen = {size: self.model.new_bool_var(f"chosen[{size}]") for size in self.sizes}
        for number in nodes:
            self._cover(number, faults)
        if (faults + 1) * least_size in nodes:
            self.model.add_bool_or(self.chosen[least_size])  # (4)
        self.model.minimize(cp_model.LinearExpr.sum(list(self.chosen.values())))

    def _cover(self, nodes: int, faults: int) -> None:
        model = self.model
        fitting = [size for size in self.sizes if size <= nodes]
        counts = [model.new_int_var(0, nodes // s, f"count[{nodes}][{s}]") for s in fitting]
        model.add(cp_model.LinearExpr.weighted_sum(counts, fitting) == nodes)  # (1)
        model.add(cp_model.LinearExpr.sum(counts) >= faults + 1)  # (2)
        for size, count in zip(fitting, counts, strict=True):
            model.add(count <= (nodes // size) * self.chosen[size])  # (3)

    def hint(self, sizes: Sequence[int]) -> None:
        """Suggest sizes."""
        for size, literal in self.chosen.items():
            self.model.add_hint(literal, int(size in sizes))

    def extract(self, values: Sequence[float]) -> tuple[int, ...]:
        """The sizes of a solution, ascending."""
        return tuple(size for size, literal in self.chosen.items() if values[literal.index])


def build(nodes: range, least_size: int, faults: int) -> Built:
    """The model for node counts `nodes`; ValueError if one is below (f + 1) n0, or there is none.

    `least_size`: n0 >= 1. `faults`: f >= 0.
    """
    if not nodes or min(nodes) < (faults + 1) * least_size:
        raise ValueError(f"{nodes} with sizes from {least_size} on and {faults} faults")
    return Built(nodes, least_size, faults)
