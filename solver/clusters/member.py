"""Closing one cluster of a family: no plan of it is below a cutoff, or the best that is."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from formulations.instance import Instance
from formulations.instance.family import Counts, Family
from formulations.plan import Plan, Shape
from solver.heuristics.choose import TimeTables
from solver.interrupt import TimeUp, time_up_after
from solver.options import SolveOptions
from solver.result import ShapeRecord, rent_usd_per_hour
from solver.search.driver import ShapeSearch
from solver.search.shapes import PRICE_NOISE, shapes_of


@dataclass(frozen=True)
class MemberTask:
    """A cluster to close: plans of it are of interest below `cutoff_ns`."""

    counts: Counts
    cutoff_ns: float


@dataclass(frozen=True)
class MemberClosing:
    """What is known of a cluster after its search.

    found: the best plan below the cutoff with its step time in ns. bound_ns: every plan takes at
    least that; None: there is none. interrupted: by Ctrl-C, which the caller has to pass on.
    """

    counts: Counts
    found: tuple[Plan, int] | None
    bound_ns: int | None
    records: tuple[ShapeRecord, ...]
    interrupted: bool = False


class Members:
    """The clusters of a family within its limit on rent; their searches share layer times.

    `instance` has the most nodes of every group, of which plans may use any.
    """

    def __init__(self, family: Family, options: SolveOptions) -> None:
        self.family, self.options = family, options
        objective = family.instance.objective.model_copy(update={"minimize": "step_time"})
        search = family.instance.search.model_copy(update={"idle_nodes": True})
        update = {"objective": objective, "search": search}
        self.instance: Instance = family.instance.model_copy(update=update)
        self.times = TimeTables(self.instance)
        limit = self.instance.limits.max_price_usd_per_hour
        self.counts = [
            counts
            for counts in family.members()
            if limit is None
            or rent_usd_per_hour(self.instance, counts) <= limit * (1 + PRICE_NOISE)
        ]

    def space(self, counts: Counts) -> Iterator[Shape]:
        """All shapes of a cluster that no smaller one has."""
        for used in self.family.uses(counts):
            yield from shapes_of(self.instance, used)

    def bounds_ns(self) -> dict[Counts, int | None]:
        """Lower bound of the step time of every cluster; None: it has no shape."""
        return {counts: self._bound_ns(counts) for counts in self.counts}

    def _bound_ns(self, counts: Counts) -> int | None:
        forms = self.times.forms(list(self.space(counts)))
        return min((form.bound_ns for form in forms), default=None)

    def close(self, task: MemberTask, limit_s: float | None) -> MemberClosing:
        """Closes a cluster, unless time or Ctrl-C end that early."""
        options = replace(self.options, time_limit_s=limit_s)
        space, below = self.space(task.counts), task.cutoff_ns
        search = ShapeSearch(self.instance, options, None, self.times, space, below)
        interrupted = False
        try:
            with time_up_after(search.clock.left_s):
                _run(search)
        except TimeUp:
            pass
        except KeyboardInterrupt:
            interrupted = True
        return _closing(task, search, interrupted)


def _run(search: ShapeSearch) -> None:
    """As `solve`, but bounds come first: as a rule they are enough."""
    incumbents, agenda = search.incumbents, search.agenda
    open_ = agenda.open(incumbents.best)
    left = agenda.unpacked(open_, incumbents.best, search.clock.out_of_time)
    if left:
        space = [task.shape for task in left]
        incumbents.seed_chunks(space)
        incumbents.seed(space)
        incumbents.survey(space)
        search.run()


def _closing(task: MemberTask, search: ShapeSearch, interrupted: bool) -> MemberClosing:
    known, found = search.incumbents.known, None
    records = search.agenda.reviewed(search.incumbents.best)
    bounds = [one.bound_ns for one in records if one.bound_ns is not None]
    if not search.agenda.complete:
        bounds.append(0)
    if known.plan is not None and known.step_time_ns is not None:
        found = known.plan, known.step_time_ns
        bounds.append(known.step_time_ns)
    return MemberClosing(task.counts, found, min(bounds, default=None), records, interrupted)
