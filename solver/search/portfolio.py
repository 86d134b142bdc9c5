"""Shapes closed one after the other, or ahead of their turn by a crew of workers."""

import time
from collections.abc import Callable, Iterator, Sequence

from solver.options import SolveOptions
from solver.search.enumeration import Stop
from solver.search.fathoming import Closer, Closing, Task
from solver.search.speculation import Ahead
from solver.search.worker_pool import Crew, Forks

#: Seconds in which one process closes what it can; others take a while to start.
ALONE_S = 0.25

#: Objective of the incumbent; None without one.
Best = Callable[[], float | None]


def crew_of(options: SolveOptions) -> Crew | None:
    """The workers that the options ask for; None: the search works alone. PlannerError: no Ray."""
    if options.engine == "ray":
        from solver.search.ray_pool import ray_crew

        return ray_crew(options.workers, options.address)
    return Forks(options.workers) if options.workers > 1 and Forks.possible() else None


def closings(
    closer: Closer, tasks: Sequence[Task], best: Best, crew: Crew | None, stop: Stop
) -> Iterator[Closing]:
    """Closes those of `tasks` that may beat the incumbent, in their order, until `stop` says so.

    A crew starts after a while only, and changes nothing but the time that it takes.
    """
    alone_until = time.monotonic() + ALONE_S
    for i, task in enumerate(tasks):
        if stop():
            return
        if closer.beyond(task, best()):
            continue
        if crew is not None and time.monotonic() >= alone_until:
            yield from Ahead(closer, tasks[i:], best, crew, stop).closings()
            return
        yield closer.close(task, best(), stop)
