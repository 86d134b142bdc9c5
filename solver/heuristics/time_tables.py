"""What the shapes of an instance share: layer times, costs, and bounds in closed form."""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import TypeVar

from formulations.costs.compute import LayerTimes, TimeColumns
from formulations.costs.experts import Members, members_of
from formulations.costs.sharding import with_exchanges
from formulations.costs.stage_places import stage_tables, with_stages
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance
from formulations.instance.workload import Recompute
from formulations.plan import Degrees, Shape, simulable
from formulations.space.slots import stage_places
from solver.bounds.closed_forms import ClosedForm, closed_forms
from solver.bounds.packing import packed_ns, refuted
from solver.bounds.stage_choice import StageChoice
from solver.result import objective_weight

Known = TypeVar("Known")


class _SideTables:
    """What shapes share of one side of an instance: layer times, and what their bounds are."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._columns = TimeColumns(instance)
        self._known: dict[tuple[tuple[Degrees, ...], int, Recompute, Members], LayerTimes] = {}
        self._forms: dict[Shape, ClosedForm] = {}
        self._choice = StageChoice(instance)
        self._by_place: dict[Shape, CostTables] = {}

    def afresh(self) -> "_SideTables":
        fresh = copy(self)
        fresh._forms, fresh._by_place = {}, {}
        return fresh

    def _ways(self, shape: Shape) -> list[LayerTimes]:
        """Layer times of a shape, per way to recompute."""
        members = members_of(self.instance, shape)
        keys = [(shape.degrees, shape.micro_batch, way, members) for way in shape.recompute]
        for key in keys:
            if key not in self._known:
                self._known[key] = self._columns.times(*key)
        return [with_exchanges(self.instance, shape, self._known[key]) for key in keys]

    def times(self, shape: Shape) -> LayerTimes:
        return self._ways(shape)[0]

    def costs(self, shape: Shape) -> CostTables:
        if not shape.per_stage:
            return build_tables(self.instance, shape, self._ways(shape))
        # costs by place are the same for every number of stages
        of_two = shape.but(pp=2)
        if of_two not in self._by_place:
            places = stage_places(self.instance, of_two)
            self._by_place[of_two] = stage_tables(self.instance, of_two, places)
        return with_stages(self._by_place[of_two], shape.pp)

    def forms(self, shapes: Sequence[Shape]) -> list[ClosedForm]:
        new = [shape for shape in shapes if shape not in self._forms and not shape.per_stage]
        forms = closed_forms(self.instance, new, [self.times(shape) for shape in new])
        self._forms.update(zip(new, forms, strict=True))
        for shape in shapes:
            if shape not in self._forms:
                self._forms[shape] = ClosedForm(self._choice.bound_ns(shape), "filling")
        return [self._forms[shape] for shape in shapes]

    def refuted(self, shapes: Sequence[Shape], below_ns: Sequence[int]) -> list[bool]:
        """It knows no stages with degrees of their own, and refutes none of their shapes."""
        pairs = zip(shapes, below_ns, strict=True)
        uniform = {shape: ns for shape, ns in pairs if not shape.per_stage}
        times = [self.times(shape) for shape in uniform]
        closed = refuted(self.instance, [*uniform], times, [*uniform.values()])
        shut = dict(zip(uniform, closed, strict=True))
        return [shut.get(shape, False) for shape in shapes]

    def packed_ns(self, shapes: Sequence[Shape]) -> list[int]:
        bounds = dict(zip(shapes, (form.bound_ns for form in self.forms(shapes)), strict=True))
        uniform = {shape: ns for shape, ns in bounds.items() if not shape.per_stage}
        times = [self.times(shape) for shape in uniform]
        packed = packed_ns(self.instance, [*uniform], times, [*uniform.values()])
        bounds |= zip(uniform, packed, strict=True)
        return [bounds[shape] for shape in shapes]


class TimeTables:
    """What the shapes of an instance share: a table for each of its sides."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._sides = [_SideTables(side) for side in instance.sides]

    def afresh(self) -> "TimeTables":
        """The same layer times, without the bounds of shapes, which fill memory where many pass."""
        fresh = copy(self)
        fresh._sides = [side.afresh() for side in self._sides]
        return fresh

    def _by_side(
        self, ask: Callable[..., list[Known]], shapes: Sequence[Shape], *columns: Sequence[int]
    ) -> list[Known]:
        """What the side of each shape answers, asked once for all its shapes."""
        if self.instance.fused is None:
            return ask(self._sides[0], shapes, *columns)
        answers: dict[int, Known] = {}
        side_of = [self.instance.side(shape.nodes_used) for shape in shapes]
        for number, side in enumerate(self._sides):
            places = [i for i, side_number in enumerate(side_of) if side_number == number]
            asked = ([column[i] for i in places] for column in (shapes, *columns))
            answers |= zip(places, ask(side, *asked), strict=True)
        return [answers[i] for i in range(len(shapes))]

    def costs(self, shape: Shape) -> CostTables:
        """All costs of a shape."""
        return self._sides[self.instance.side(shape.nodes_used)].costs(shape)

    def forms(self, shapes: Sequence[Shape]) -> list[ClosedForm]:
        """Closed-form bounds of shapes, in their order."""
        return self._by_side(_SideTables.forms, shapes)

    def refuted(self, shapes: Sequence[Shape], below_ns: Sequence[int]) -> list[bool]:
        """Whether whole blocks leave no plan of each shape below these times, see `packing`."""
        return self._by_side(_SideTables.refuted, shapes, below_ns)

    def packed_ns(self, shapes: Sequence[Shape]) -> list[int]:
        """Bounds of the step times of shapes, by `packing` from those in closed form."""
        return self._by_side(_SideTables.packed_ns, shapes)

    def by_bound(self, shapes: Iterable[Shape]) -> list[tuple[float, Shape]]:
        """Lower bound of the objective, and shape that can be simulated.

        Least bound first, equal ones as given. Without those in which every stage has degrees of
        its own, which no heuristic knows.
        """
        uniform = (shape for shape in shapes if not shape.per_stage)
        space = [shape for shape in uniform if simulable(self.instance, shape)]
        forms = self.forms(space)
        ranked = [
            (form.bound_ns * objective_weight(self.instance, shape), shape)
            for form, shape in zip(forms, space, strict=True)
        ]
        return sorted(ranked, key=lambda pair: pair[0])
