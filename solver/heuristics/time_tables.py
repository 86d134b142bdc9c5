"""What the configurations of an instance share: layer times, costs, and bounds in closed form."""

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
from formulations.plan import Configuration, Degrees, simulable
from formulations.space.slots import stage_places
from solver.bounds.closed_forms import ClosedForm, closed_forms
from solver.bounds.packing import packed_ns, refuted
from solver.bounds.stage_choice import StageChoice
from solver.result import objective_weight

Known = TypeVar("Known")


class _SideTables:
    """What configs share of one side of an instance: layer times, and what their bounds are."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._columns = TimeColumns(instance)
        self._known: dict[tuple[tuple[Degrees, ...], int, Recompute, Members], LayerTimes] = {}
        self._forms: dict[Configuration, ClosedForm] = {}
        self._choice = StageChoice(instance)
        self._by_place: dict[Configuration, CostTables] = {}

    def afresh(self) -> "_SideTables":
        fresh = copy(self)
        fresh._forms, fresh._by_place = {}, {}
        return fresh

    def _ways(self, config: Configuration) -> list[LayerTimes]:
        """Layer times of a configuration, per way to recompute."""
        members = members_of(self.instance, config)
        keys = [(config.degrees, config.micro_batch, way, members) for way in config.recompute]
        for key in keys:
            if key not in self._known:
                self._known[key] = self._columns.times(*key)
        return [with_exchanges(self.instance, config, self._known[key]) for key in keys]

    def times(self, config: Configuration) -> LayerTimes:
        return self._ways(config)[0]

    def costs(self, config: Configuration) -> CostTables:
        if not config.per_stage:
            return build_tables(self.instance, config, self._ways(config))
        # costs by place are the same for every number of stages
        of_two = config.but(pp=2)
        if of_two not in self._by_place:
            places = stage_places(self.instance, of_two)
            self._by_place[of_two] = stage_tables(self.instance, of_two, places)
        return with_stages(self._by_place[of_two], config.pp)

    def forms(self, configs: Sequence[Configuration]) -> list[ClosedForm]:
        new = [config for config in configs if config not in self._forms and not config.per_stage]
        forms = closed_forms(self.instance, new, [self.times(config) for config in new])
        self._forms.update(zip(new, forms, strict=True))
        for config in configs:
            if config not in self._forms:
                self._forms[config] = ClosedForm(self._choice.bound_ns(config), "filling")
        return [self._forms[config] for config in configs]

    def refuted(self, configs: Sequence[Configuration], below_ns: Sequence[int]) -> list[bool]:
        """It knows no stages with degrees of their own, and refutes none of their configs."""
        pairs = zip(configs, below_ns, strict=True)
        uniform = {config: ns for config, ns in pairs if not config.per_stage}
        times = [self.times(config) for config in uniform]
        closed = refuted(self.instance, [*uniform], times, [*uniform.values()])
        shut = dict(zip(uniform, closed, strict=True))
        return [shut.get(config, False) for config in configs]

    def packed_ns(self, configs: Sequence[Configuration]) -> list[int]:
        bounds = dict(zip(configs, (form.bound_ns for form in self.forms(configs)), strict=True))
        uniform = {config: ns for config, ns in bounds.items() if not config.per_stage}
        times = [self.times(config) for config in uniform]
        packed = packed_ns(self.instance, [*uniform], times, [*uniform.values()])
        bounds |= zip(uniform, packed, strict=True)
        return [bounds[config] for config in configs]


class TimeTables:
    """What the configurations of an instance share: a table for each of its sides."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._sides = [_SideTables(side) for side in instance.sides]

    def afresh(self) -> "TimeTables":
        """The same layer times without bounds of configs, which fill memory where many pass."""
        fresh = copy(self)
        fresh._sides = [side.afresh() for side in self._sides]
        return fresh

    def _by_side(
        self,
        ask: Callable[..., list[Known]],
        configs: Sequence[Configuration],
        *columns: Sequence[int],
    ) -> list[Known]:
        """What the side of each configuration answers, asked once for all its configurations."""
        if self.instance.fused is None:
            return ask(self._sides[0], configs, *columns)
        answers: dict[int, Known] = {}
        side_of = [self.instance.side(config.nodes_used) for config in configs]
        for number, side in enumerate(self._sides):
            places = [i for i, side_number in enumerate(side_of) if side_number == number]
            asked = ([column[i] for i in places] for column in (configs, *columns))
            answers |= zip(places, ask(side, *asked), strict=True)
        return [answers[i] for i in range(len(configs))]

    def costs(self, config: Configuration) -> CostTables:
        """All costs of a configuration."""
        return self._sides[self.instance.side(config.nodes_used)].costs(config)

    def forms(self, configs: Sequence[Configuration]) -> list[ClosedForm]:
        """Closed-form bounds of configurations, in their order."""
        return self._by_side(_SideTables.forms, configs)

    def refuted(self, configs: Sequence[Configuration], below_ns: Sequence[int]) -> list[bool]:
        """Whether whole blocks leave no plan of each config below these times, see `packing`."""
        return self._by_side(_SideTables.refuted, configs, below_ns)

    def packed_ns(self, configs: Sequence[Configuration]) -> list[int]:
        """Bounds of the step times of configurations, by `packing` from those in closed form."""
        return self._by_side(_SideTables.packed_ns, configs)

    def by_bound(self, configs: Iterable[Configuration]) -> list[tuple[float, Configuration]]:
        """Lower bound of the objective, and configuration that can be simulated.

        Least bound first, equal ones as given. Without those in which every stage has degrees of
        its own, which no heuristic knows.
        """
        uniform = (config for config in configs if not config.per_stage)
        space = [config for config in uniform if simulable(self.instance, config)]
        forms = self.forms(space)
        ranked = [
            (form.bound_ns * objective_weight(self.instance, config), config)
            for form, config in zip(forms, space, strict=True)
        ]
        return sorted(ranked, key=lambda pair: pair[0])
