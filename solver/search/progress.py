"""What a running search tells and notes: incumbent and bound as they come together."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from solver.result import Moment, relative_gap
from solver.search.incumbents import Incumbents
from solver.search.open_list import OpenList


@dataclass(frozen=True)
class Progress:
    """State of a search. None: not known yet; gap is relative, as in `solver.result.Result`."""

    configs_closed: int
    configs_total: int
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
    """What is told of one search, whose configurations and plans are those given."""

    def __init__(self, open_list: OpenList, incumbents: Incumbents, report: Report | None) -> None:
        self._open_list, self._incumbents, self._report = open_list, incumbents, report
        self._deadline = incumbents.deadline
        #: of the objective, and when; at first the cheapest of a task
        self._bounds = [(self._deadline.elapsed_s, task.objective) for task in open_list.tasks[:1]]

    def tell(self) -> None:
        """Reports the state of the search, and notes its bound from time to time."""
        elapsed_s = self._deadline.elapsed_s
        noted_s = self._bounds[-1][0] if self._bounds else 0.0
        if self._report is None and elapsed_s < NOTED_EVERY * noted_s:
            return
        incumbents, records = self._incumbents, self._open_list.records
        minimize = incumbents.instance.objective.minimize
        proved = self._open_list.least_bound(incumbents.best)
        bound = incumbents.known.objective if proved is None else proved
        if elapsed_s >= NOTED_EVERY * noted_s:
            self._bounds.append((elapsed_s, bound))
        if self._report is not None:
            by_time = minimize == "step_time" and bound < math.inf  # else there may be no plan
            self._report(
                Progress(
                    configs_closed=sum(record.reason != "open" for record in records.values()),
                    configs_total=len(self._open_list.tasks),
                    incumbent_ns=incumbents.known.step_time_ns,
                    bound_ns=int(bound) if by_time else None,
                    gap=relative_gap(incumbents.best, bound),
                    elapsed_s=elapsed_s,
                    limit_s=self._deadline.limit_s,
                )
            )

    def moments(self, best: float | None, bound: float | None) -> tuple[Moment, ...]:
        """Incumbents and bounds in order of time; bounds as shares of the best plan's objective."""
        if not best:
            return ()
        last = [] if bound is None else [(self._deadline.elapsed_s, bound)]
        noted = [*self._bounds, *last]
        shares = [Moment(elapsed_s=at_s, bound=min(1.0, value / best)) for at_s, value in noted]
        return tuple(
            sorted([*self._incumbents.history, *shares], key=lambda moment: moment.elapsed_s)
        )
