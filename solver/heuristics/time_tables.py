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


class TimeTables:
    """What the configurations of an instance share, each on its side of the instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._columns = [TimeColumns(side) for side in instance.sides]
        self._choices = [StageChoice(side) for side in instance.sides]
        self._known: dict[tuple[int, tuple[Degrees, ...], int, Recompute, Members], LayerTimes] = {}
        self._forms: dict[Configuration, ClosedForm] = {}
        self._by_place: dict[Configuration, CostTables] = {}

    def afresh(self) -> "TimeTables":
        """The same layer times without bounds of configs, which fill memory where many pass."""
        fresh = copy(self)
        fresh._forms, fresh._by_place = {}, {}
        return fresh

    def _times(self, config: Configuration, way: Recompute) -> LayerTimes:
        """Layer times of a configuration that recomputes in one of its ways."""
        side, instance = self.instance.side(config.nodes_used), self.instance.on(config.nodes_used)
        key = side, config.degrees, config.micro_batch, way, members_of(instance, config)
        if key not in self._known:
            self._known[key] = self._columns[side].times(*key[1:])
        return with_exchanges(instance, config, self._known[key])

    def _asked(
        self,
        ask: Callable[..., Sequence[Known]],
        configs: Sequence[Configuration],
        *columns: Sequence[int],
    ) -> dict[Configuration, Known]:
        """What a bound says of those configs without degrees per stage, asked once per side."""
        answers, places_of = dict[Configuration, Known](), dict[int, list[int]]()
        for i, config in enumerate(configs):
            if not config.per_stage:
                places_of.setdefault(self.instance.side(config.nodes_used), []).append(i)
        for number, places in places_of.items():
            asked = [configs[i] for i in places]
            times = [self._times(config, config.recompute[0]) for config in asked]
            values = ([column[i] for i in places] for column in columns)
            of_side = ask(self.instance.sides[number], asked, times, *values)
            answers |= zip(asked, of_side, strict=True)
        return answers

    def costs(self, config: Configuration) -> CostTables:
        """All costs of a configuration."""
        instance = self.instance.on(config.nodes_used)
        if not config.per_stage:
            times = [self._times(config, way) for way in config.recompute]
            return build_tables(instance, config, times)
        # costs by place are the same for every number of stages
        of_two = config.but(pp=2)
        if of_two not in self._by_place:
            places = stage_places(instance, of_two)
            self._by_place[of_two] = stage_tables(instance, of_two, places)
        return with_stages(self._by_place[of_two], config.pp)

    def forms(self, configs: Sequence[Configuration]) -> list[ClosedForm]:
        """Closed-form bounds of configurations, in their order."""
        new = [config for config in configs if config not in self._forms]
        self._forms |= self._asked(closed_forms, new)
        for config in configs:
            if config not in self._forms:
                choice = self._choices[self.instance.side(config.nodes_used)]
                self._forms[config] = ClosedForm(choice.bound_ns(config), "filling")
        return [self._forms[config] for config in configs]

    def refuted(self, configs: Sequence[Configuration], below_ns: Sequence[int]) -> list[bool]:
        """Whether whole blocks leave no plan of each config below these times, see `packing`.

        They know no stages with degrees of their own, and refute none of their configs.
        """
        closed = self._asked(refuted, configs, below_ns)
        return [closed.get(config, False) for config in configs]

    def packed_ns(self, configs: Sequence[Configuration]) -> list[int]:
        """Bounds of the step times of configurations, by `packing` from those in closed form."""
        bounds_ns = [form.bound_ns for form in self.forms(configs)]
        packed = self._asked(packed_ns, configs, bounds_ns)
        return [packed.get(config, ns) for config, ns in zip(configs, bounds_ns, strict=True)]

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
