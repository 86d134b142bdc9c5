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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from typing import Protocol

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


@dataclass(frozen=True)
class Asked:
    """A task of the queue, and the best objective that is known of those before it; None: none."""

    position: int
    task: Task
    best: float | None


@dataclass(frozen=True)
class Reply:
    """The answer to the task at a position; None: it was not looked at, or its worker was lost."""

    position: int
    answer: Answer | None
    lost: bool = False


class Round(Protocol):
    """A crew at work on one queue."""

    @property
    def room(self) -> int:
        """How many tasks the next batch may hold; 0 while all are at work."""

    def submit(self, batch: Sequence[Asked]) -> None:
        """Hands a batch to a worker."""

    def receive(self, timeout_s: float) -> list[Reply]:
        """What has come by then; every task that was submitted is replied to."""

    def halt(self) -> None:
        """Tells all to hand over what they have."""


class Crew(Protocol):
    """Workers that live as long as a search."""

    def round(self, closer: Closer, size: int, stop: Stop) -> AbstractContextManager[Round]:
        """Puts them to work on a queue of about that size."""


def warn_of_loss() -> None:
    """One line, whoever was lost."""
    _log.warning("a worker was lost; another one does its work again")


@dataclass(frozen=True)
class Forks:
    """So many worker processes."""

    workers: int

    @staticmethod
    def possible() -> bool:
        """Whether this machine has them."""
        return "fork" in multiprocessing.get_all_start_methods()

    @contextmanager
    def round(self, closer: Closer, size: int, stop: Stop) -> Iterator[Round]:
        """New forks for every queue."""
        round_ = _ForkRound(closer, stop)
        try:
            for _ in range(min(self.workers, size)):
                round_.start()
            yield round_
        finally:
            for worker in list(round_.workers):
                round_.bury(worker)


@dataclass
class _Worker:
    process: ForkProcess
    connection: Connection
    position: int | None = None  #: of the task that it is at


class _ForkRound:
    """Workers with one task each, which they have from their pipe."""

    def __init__(self, closer: Closer, stop: Stop) -> None:
        self.closer, self.stop = closer, stop
        self.context: ForkContext = multiprocessing.get_context("fork")
        self.halted = self.context.RawValue("b", 0)  # shared, and no lock to die with
        self.workers: list[_Worker] = []

    @property
    def room(self) -> int:
        """One task for everyone who has none."""
        return int(any(worker.position is None for worker in self.workers))

    def submit(self, batch: Sequence[Asked]) -> None:
        """To the first who has nothing to do; if it has died, its reply will be missed."""
        worker = next(worker for worker in self.workers if worker.position is None)
        for asked in batch:
            worker.position = asked.position
            with suppress(OSError):
                worker.connection.send(asked)

    def halt(self) -> None:
        """All see it when they next ask whether to stop."""
        self.halted.value = 1

    def receive(self, timeout_s: float) -> list[Reply]:
        """From all who have replied; a worker that has died is replaced."""
        by_connection = {worker.connection: worker for worker in self.workers}
        replies = list[Reply]()
        for ready in wait(list(by_connection), timeout_s):
            assert isinstance(ready, Connection)
            worker = by_connection[ready]
            try:
                replies.append(ready.recv())
            except (EOFError, OSError):
                warn_of_loss()
                if worker.position is not None:
                    replies.append(Reply(worker.position, None, lost=True))
                self.bury(worker)
                self.start()
            else:
                worker.position = None
        return replies

    def start(self) -> None:
        """One more worker."""
        ours, theirs = self.context.Pipe()
        others = [ours, *(worker.connection for worker in self.workers)]
        process = self.context.Process(target=self._work, args=(theirs, others), daemon=True)
        with held_back():  # until the worker ignores it
            process.start()
        theirs.close()
        self.workers.append(_Worker(process, ours))

    def bury(self, worker: _Worker) -> None:
        """Ends a worker, whatever it is at."""
        self.workers.remove(worker)
        worker.connection.close()
        worker.process.terminate()
        worker.process.join()

    def _work(self, connection: Connection, others: Sequence[Connection]) -> None:
        """What a worker does, until the search ends; Ctrl-C is for the search, which halts it."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for pipe in others:  # so that it hears when the search was killed
            pipe.close()
        with suppress(EOFError, OSError):
            while True:
                asked: Asked = connection.recv()
                answer = self.closer.answer(
                    asked.task, asked.best, lambda: bool(self.halted.value) or self.stop()
                )
                connection.send(Reply(asked.position, answer))


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
