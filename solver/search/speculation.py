"""Configurations closed in the order of a queue, by one process, or ahead of their turn by a crew.

Every task is asked with the best objective that is known of those before it in the queue. At its
turn all of those are closed: what it was asked is what one process alone would have asked, or it
is asked again, unless nothing was found below a higher cutoff. So plan, bound and log do not depend
on the number of workers, on their speed, or on which of them are lost.
"""

import heapq
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from solver.interrupt import Stop
from solver.options import SolveOptions
from solver.search.fathoming import Answer, Closer, Closing, Task
from solver.search.worker_pool import Asked, Crew, Forks, Reply, Round

#: Seconds in which one process closes what it can; others take a while to start.
ALONE_S = 0.25
#: Seconds between two looks at the time.
LOOK_S = 0.1
#: Seconds that workers have to hand over what they found, when the search is stopped.
GRACE_S = 1.0
#: A task that so many workers died of stays open.
MOST_LOST = 3

#: Objective of the incumbent; None without one.
Best = Callable[[], float | None]

_log = logging.getLogger(__name__)


def crew_of(options: SolveOptions) -> Crew | None:
    """The workers that the options ask for; None: the search works alone. PlannerError: no Ray."""
    if options.engine == "ray":
        from solver.search.ray_pool import ray_crew

        return ray_crew(options.workers, options.address)
    return Forks(options.workers) if options.workers > 1 and Forks.possible() else None


def closings(
    closer: Closer,
    tasks: Sequence[Task],
    best: Best,
    crew: Crew | None,
    stop: Stop,
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
            yield from _Ahead(closer, tasks[i:], best, crew, stop).closings()
            return
        yield closer.close(task, best(), stop)


class _Ahead:
    """State of one queue. waiting: positions to be asked, a heap. early: answers before their turn.

    improved: objectives that answers before their turn have, by position. lost: workers at a task.
    """

    def __init__(
        self,
        closer: Closer,
        tasks: Sequence[Task],
        best: Best,
        crew: Crew,
        stop: Stop,
    ) -> None:
        self.closer, self.tasks, self.best, self.crew, self.stop = closer, tasks, best, crew, stop
        self.waiting = list(range(len(tasks)))
        self.at_work = set[int]()
        self.early = dict[int, Answer]()
        self.improved = dict[int, float]()
        self.lost = Counter[int]()

    def closings(self) -> Iterator[Closing]:
        """Of the tasks that may beat the incumbent, in their order; when stopped, what is known."""
        with self.crew.round(self.closer, len(self.tasks), self.stop) as round_:
            try:
                for position, task in enumerate(self.tasks):
                    closing = self._turn(round_, position, task)
                    if closing is not None:
                        yield closing
                    elif self.stop():
                        yield from self._rescued(round_)
                        return
            except KeyboardInterrupt:
                yield from self._rescued(round_)
                raise

    def _turn(self, round_: Round, position: int, task: Task) -> Closing | None:
        """How a task is closed when all before it are; None if it need not be, or when stopped."""
        self.improved = {p: value for p, value in self.improved.items() if p >= position}
        while not self.closer.beyond(task, self.best()) and not self.stop():
            closing = self.closer.known(task, self.best(), self.early.pop(position, None))
            if closing is not None:
                return closing
            if self.lost[position] >= MOST_LOST:
                _log.warning("a configuration stays open: %d workers were lost at it", MOST_LOST)
                return self.closer.by_bound(task, self.best())
            heapq.heappush(self.waiting, position)
            # batches for all that have nothing to do, those first whose turn comes first
            while (room := round_.room) and (batch := self._batch(room)):
                self.at_work.update(asked.position for asked in batch)
                round_.submit(batch)
            for reply in round_.receive(LOOK_S):
                self._note(reply)
        return None

    def _batch(self, room: int) -> list[Asked]:
        """The next tasks to be asked; one of which a worker may have died goes alone."""
        batch = list[Asked]()
        while self.waiting and len(batch) < room:
            position = heapq.heappop(self.waiting)
            if position in self.at_work or position in self.early:
                continue
            task, best = self.tasks[position], self._best_before(position)
            if self.closer.beyond(task, best) or self.closer.known(task, best) is not None:
                continue
            alone = position in self.lost
            if alone and batch:
                heapq.heappush(self.waiting, position)
                break
            batch.append(Asked(position, task, best))
            if alone:
                break
        return batch

    def _best_before(self, position: int) -> float | None:
        """The best objective that is known of the tasks before this one."""
        objectives = [objective for p, objective in self.improved.items() if p < position]
        incumbent = self.best()
        return min([*objectives, *([] if incumbent is None else [incumbent])], default=None)

    def _note(self, reply: Reply) -> None:
        """Keeps an answer; those whose questions plans have changed are to be asked again."""
        position, answer = reply.position, reply.answer
        self.at_work.discard(position)
        if reply.lost:
            self.lost[position] += 1
        if answer is None:
            heapq.heappush(self.waiting, position)
            return
        task = self.tasks[position]
        self.closer.answers.keep(task.config, answer)
        self.early[position] = answer
        objective, best = self.closer.objective(task, answer), self._best_before(position + 1)
        doubtful = [position]
        if objective is not None and (best is None or objective < best):
            self.improved[position] = objective
            doubtful = list(self.early)
        for later in doubtful:
            question = self.closer.question(self.tasks[later], self._best_before(later))
            if not self.early[later].replies(question):
                del self.early[later]
                self.improved.pop(later, None)
                heapq.heappush(self.waiting, later)

    def _rescued(self, round_: Round) -> Iterator[Closing]:
        """What workers know when they are stopped: no bound and no plan is lost."""
        round_.halt()
        while self.at_work and (replies := round_.receive(GRACE_S)):
            for reply in replies:
                self._note(reply)
        for position, answer in sorted(self.early.items()):
            task = self.tasks[position]
            yield self.closer.closing(task, answer, self.closer.question(task, self.best()))
