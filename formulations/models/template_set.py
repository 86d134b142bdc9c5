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

from formulations.models.model import Model, total_of, weighted


class TemplateSet:
    """The model for node counts `nodes`, its variables, and how to read a solution.

    least_size: n0 >= 1. faults: f >= 0. ValueError if a count is below (f + 1) n0, or there is
    none.
    """

    def __init__(self, model: Model, nodes: range, least_size: int, faults: int) -> None:
        if not nodes or min(nodes) < (faults + 1) * least_size:
            raise ValueError(f"{nodes} with sizes from {least_size} on and {faults} faults")
        self.model = model
        sizes = range(least_size, max(nodes) - faults * least_size + 1)
        self.chosen = {size: model.literal(f"chosen_{size}") for size in sizes}
        for number in nodes:
            fitting = [size for size in sizes if size <= number]
            counts = [model.integer(f"count_{number}_{s}", number // s) for s in fitting]
            model.equal(1, weighted(fitting, counts), number)
            model.at_most(2, faults + 1, total_of(*counts))
            for size, count in zip(fitting, counts, strict=True):
                model.at_most(3, count, weighted([number // size], [self.chosen[size]]))
        if (faults + 1) * least_size in nodes:
            model.some_of(4, [self.chosen[least_size]])
        model.minimize(total_of(*self.chosen.values()))

    def hint(self, sizes: Sequence[int]) -> None:
        """Suggest sizes."""
        self.model.hint((literal, int(size in sizes)) for size, literal in self.chosen.items())

    def extract(self, values: Sequence[float]) -> tuple[int, ...]:
        """The sizes of a solution, ascending."""
        solution = self.model.solution(values)
        return tuple(size for size, literal in self.chosen.items() if solution.value(literal))
