"""What a running search tells and notes: incumbent and bound as they come together."""

from collections.abc import Callable
from dataclasses import dataclass

from formulations.instance import Instance
from solver.result import Moment, relative_gap
from solver.search.incumbents import Clock, Incumbents
from solver.search.open_list import Agenda


@dataclass(frozen=True)
class Progress:
    """State of a search. None: not known yet; gap is relative, as in `solver.result.Result`."""

    shapes_closed: int
    shapes_total: int
    incumbent_ns: int | None
    bound_ns: int | None
    gap: float | None
    elapsed_s: float
    limit_s: float | None = None

    @property
    def left_s(self) -> float | None:
        """Until the time limit; None without one."""
        return None if self.limit_s is None else max(0.0, self.limit_s - self.elapsed_s)


Report = Callable[[Progress], None]


#: Bounds are noted for the report after times that grow by this factor: seldom enough to be cheap.
NOTED_EVERY = 1.25


class SearchHistory:
    """What is told of one search, whose shapes, plans and time are those given."""

    def __init__(
        self,
        instance: Instance,
        clock: Clock,
        agenda: Agenda,
        incumbents: Incumbents,
        report: Report | None,
    ) -> None:
        self._instance, self._clock, self._report = instance, clock, report
        self._agenda, self._incumbents = agenda, incumbents
        least = agenda.tasks[:1]  # that of the cheapest bound
        #: of the objective, and when
        self._bounds = [(clock.elapsed_s, task.objective) for task in least]

    def tell(self) -> None:
        """Reports the state of the search, and notes its bound from time to time."""
        elapsed_s = self._clock.elapsed_s
        noted_s = self._bounds[-1][0] if self._bounds else 0.0
        if self._report is None and elapsed_s < NOTED_EVERY * noted_s:
            return
        found = self._incumbents
        least = self._agenda.least_bound(found.best)
        bound = found.objective if least is None else least
        if elapsed_s >= NOTED_EVERY * noted_s:
            self._bounds.append((elapsed_s, bound))
        if self._report is not None:
            self._report(self._progress(bound))

    def moments(self, best: float | None, bound: float | None) -> tuple[Moment, ...]:
        """Incumbents and bounds in order of time; bounds as shares of the best plan's objective."""
        if not best:
            return ()
        noted = self._bounds if bound is None else [*self._bounds, (self._clock.elapsed_s, bound)]
        shares = [Moment(elapsed_s=at_s, bound=min(1.0, value / best)) for at_s, value in noted]
        return tuple(sorted([*self._incumbents.history, *shares], key=lambda one: one.elapsed_s))

    def _progress(self, bound: float) -> Progress:
        found = self._incumbents
        return Progress(
            shapes_closed=self._agenda.num_closed,
            shapes_total=len(self._agenda.tasks),
            incumbent_ns=found.known.step_time_ns,
            bound_ns=int(bound) if self._instance.objective.minimize == "step_time" else None,
            gap=relative_gap(found.best, bound),
            elapsed_s=self._clock.elapsed_s,
            limit_s=self._clock.limit_s,
        )
