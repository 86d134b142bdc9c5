"""Configurations closed in the order of a queue, by one process, or ahead of their turn by a crew.

Every task is asked with the best objective that is known of those before it in the queue. At its
turn all of those are closed: what it was asked is what one process alone would have asked, or it
is asked again, unless nothing was found below a higher cutoff. So plan, bound and log do not depend
on the number of workers, on their speed, or on which of them are lost.

Nobody tells workers of plans that others find while they are at work: a task whose question has
changed by then is asked again. (With news of plans two workers took as much processor time.) Forks
are processes of this machine; Ray's workers are in `ray_pool`.
"""

import heapq
import logging
import multiprocessing
import signal
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from typing import Any, NamedTuple

from solver.interrupt import Stop, held_back
from solver.options import SolveOptions
from solver.search.fathoming import Answer, Closer, Closing, Task

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


class Lost(Exception):
    """A worker has died."""


class Crew(ABC):
    """Workers that live as long as a search, at one task each.

    idle: workers without a task. busy: by what a worker answers through, the worker and the
    position of its task in the queue; None: nobody waits for what it says.
    """

    def __init__(self, workers: int) -> None:
        self.workers, self.idle = workers, list[Any]()
        self.busy: dict[Any, tuple[Any, int | None]] = {}

    @abstractmethod
    def round(self, closer: Closer, size: int, stop: Stop) -> AbstractContextManager[None]:
        """Puts them to work on a queue of that size."""

    @abstractmethod
    def start(self) -> None:
        """One more worker."""

    @abstractmethod
    def halt(self) -> None:
        """Tells all to hand over what they have."""

    @abstractmethod
    def _ask(self, worker: Any, task: Task, best: float | None) -> Any:
        """Hands a task to a worker; through what it answers."""

    @abstractmethod
    def _ready(self, timeout_s: float) -> Sequence[Any]:
        """Through what there are answers by then."""

    @abstractmethod
    def _fetched(self, ready: Any, worker: Any) -> Answer | None:
        """What a worker says, None that it is up. Raises Lost."""

    @property
    def at_work(self) -> set[int]:
        """Positions of the tasks that workers are at."""
        return {position for _, position in self.busy.values() if position is not None}

    def submit(self, position: int, task: Task, best: float | None) -> None:
        """To the one who has waited longest; if it has died, its answer will be missed."""
        worker = self.idle.pop(0)
        self.busy[self._ask(worker, task, best)] = worker, position

    def receive(self, timeout_s: float) -> list[tuple[int, Answer | None]]:
        """Answers by their positions that have come by then; None: its worker was lost.

        Those who are lost are replaced.
        """
        replies = list[tuple[int, Answer | None]]()
        for ready in self._ready(timeout_s):
            worker, position = self.busy[ready]
            try:
                answer = self._fetched(ready, worker)
                self.idle.append(worker)
            except Lost:
                _log.warning("a worker was lost; another one does its work again")
                answer = None
                self.start()
            del self.busy[ready]
            if position is not None:
                replies.append((position, answer))
        return replies


class _Fork(NamedTuple):
    """A worker process, and the pipe that its tasks and answers go through."""

    process: ForkProcess
    connection: Connection


class Forks(Crew):
    """So many worker processes, new ones for every queue."""

    @contextmanager
    def round(self, closer: Closer, size: int, stop: Stop) -> Iterator[None]:
        """New forks, which end with the queue."""
        self.closer, self.stop = closer, stop
        self.context: ForkContext = multiprocessing.get_context("fork")
        self.halted = self.context.RawValue("b", 0)  # shared, and no lock to die with
        try:
            for _ in range(min(self.workers, size)):
                self.start()
            yield
        finally:
            for fork in self._forks():
                self._bury(fork)
            self.idle, self.busy = [], {}

    def _forks(self) -> list[_Fork]:
        return [*self.idle, *(fork for fork, _ in self.busy.values())]

    def halt(self) -> None:
        """All see it when they next ask whether to stop."""
        self.halted.value = 1

    def start(self) -> None:
        """One more process."""
        ours, theirs = self.context.Pipe()
        others = [ours, *(fork.connection for fork in self._forks())]
        process = self.context.Process(target=self._work, args=(theirs, others), daemon=True)
        with held_back():  # until the worker ignores it
            process.start()
        theirs.close()
        self.idle.append(_Fork(process, ours))

    def _bury(self, fork: _Fork) -> None:
        """Ends a worker, whatever it is at."""
        fork.connection.close()
        fork.process.terminate()
        fork.process.join()

    def submit(self, position: int, task: Task, best: float | None) -> None:
        """To one who lives: a task is not to blame for those that died without any."""
        while not self.idle[0].process.is_alive():
            self._bury(self.idle.pop(0))
            self.start()
        super().submit(position, task, best)

    def _ask(self, worker: _Fork, task: Task, best: float | None) -> Connection:
        with suppress(OSError):
            worker.connection.send((task, best))
        return worker.connection

    def _ready(self, timeout_s: float) -> Sequence[Any]:
        return wait(list(self.busy), timeout_s)

    def _fetched(self, ready: Connection, worker: _Fork) -> Answer:
        try:
            answer: Answer = ready.recv()
        except (EOFError, OSError):
            self._bury(worker)
            raise Lost from None
        return answer

    def _work(self, connection: Connection, others: Sequence[Connection]) -> None:
        """What a worker does, until the search ends; Ctrl-C is for the search, which halts it."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for pipe in others:  # so that it hears when the search was killed
            pipe.close()
        with suppress(EOFError, OSError):
            while True:
                task, best = connection.recv()
                connection.send(
                    self.closer.answer(task, best, lambda: bool(self.halted.value) or self.stop())
                )


def crew_of(options: SolveOptions) -> Crew | None:
    """The workers that the options ask for; None: the search works alone. PlannerError: no Ray."""
    if options.engine == "ray":
        from solver.search.ray_pool import ray_crew

        return ray_crew(options.workers, options.address)
    return Forks(options.workers) if options.workers > 1 else None


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
            yield from _Ahead(closer, tasks[i:], best, crew, stop).closings()
            return
        yield closer.close(task, best(), stop)


class _Ahead:
    """State of one queue. waiting: positions to be asked, a heap. early: answers before their turn.

    improved: objectives that answers before their turn have, by position. lost: workers at a task.
    """

    def __init__(
        self, closer: Closer, tasks: Sequence[Task], best: Best, crew: Crew, stop: Stop
    ) -> None:
        self.closer, self.tasks, self.best, self.crew, self.stop = closer, tasks, best, crew, stop
        self.waiting = list(range(len(tasks)))
        self.early = dict[int, Answer]()
        self.improved = dict[int, float]()
        self.lost = Counter[int]()

    def closings(self) -> Iterator[Closing]:
        """Of the tasks that may beat the incumbent, in their order; when stopped, what is known."""
        with self.crew.round(self.closer, len(self.tasks), self.stop):
            try:
                for position, task in enumerate(self.tasks):
                    closing = self._turn(position, task)
                    if closing is not None:
                        yield closing
                    elif self.stop():
                        yield from self._rescued()
                        return
            except KeyboardInterrupt:
                yield from self._rescued()
                raise

    def _turn(self, position: int, task: Task) -> Closing | None:
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
            self._ask()
            self._hear(LOOK_S)
        return None

    def _ask(self) -> None:
        """Tasks for all who have nothing to do, those first whose turn comes first."""
        while self.waiting and self.crew.idle:
            position = heapq.heappop(self.waiting)
            if position in self.crew.at_work or position in self.early:
                continue
            task, best = self.tasks[position], self._best_before(position)
            if not self.closer.beyond(task, best) and self.closer.known(task, best) is None:
                self.crew.submit(position, task, best)

    def _best_before(self, position: int) -> float | None:
        """The best objective that is known of the tasks before this one."""
        objectives = [objective for p, objective in self.improved.items() if p < position]
        incumbent = self.best()
        return min([*objectives, *([] if incumbent is None else [incumbent])], default=None)

    def _hear(self, timeout_s: float) -> int:
        """Keeps the answers that come by then; how many.

        Those whose questions plans have changed are to be asked again.
        """
        replies = self.crew.receive(timeout_s)
        for position, answer in replies:
            if answer is None:
                self.lost[position] += 1
                heapq.heappush(self.waiting, position)
                continue
            task = self.tasks[position]
            self.closer.answers.keep(task.config, answer)
            self.early[position] = answer
            doubtful, best = [position], self._best_before(position + 1)
            if answer.found is not None and answer.found.step_time_ns is not None:
                objective = self.closer.objective(task.config, answer.found.step_time_ns)
                if best is None or objective < best:
                    self.improved[position] = objective
                    doubtful = list(self.early)
            for later in doubtful:
                question = self.closer.question(self.tasks[later], self._best_before(later))
                if not self.early[later].replies(question):
                    del self.early[later]
                    self.improved.pop(later, None)
                    heapq.heappush(self.waiting, later)
        return len(replies)

    def _rescued(self) -> Iterator[Closing]:
        """What workers know when they are stopped: no bound and no plan is lost."""
        self.crew.halt()
        while self.crew.at_work and self._hear(GRACE_S):
            pass
        for position, answer in sorted(self.early.items()):
            task = self.tasks[position]
            yield self.closer.closing(task, answer, self.closer.question(task, self.best()))
