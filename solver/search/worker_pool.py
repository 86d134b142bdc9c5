"""Workers that answer ahead of the search: what they are asked, and processes of this machine.

Nobody tells them of plans that others find while they are at work: a task whose question has
changed by then is asked again. (With news of plans two workers took as much processor time.)
"""

import logging
import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from typing import Generic, Protocol, TypeVar

from solver.interrupt import held_back
from solver.search.enumeration import Stop

_log = logging.getLogger(__name__)

#: Objective that plans have to be below; None: any.
Best = float | None
#: A task that so many workers died of stays open.
MOST_LOST = 3

Task = TypeVar("Task")
Answer = TypeVar("Answer")


class Answerer(Protocol[Task, Answer]):
    """Who answers: all that a worker has to know of a problem."""

    def answer(self, task: Task, best: Best, stop: Stop) -> Answer:
        """What there is to say, until `stop`."""

    def elsewhere(self) -> "Callable[[], Answerer[Task, Answer]]":
        """How another process makes it again: small, and without what this one has open."""


@dataclass(frozen=True)
class Asked(Generic[Task]):
    """A task of the queue, and the best objective that is known of those before it."""

    position: int
    task: Task
    best: Best = None


@dataclass(frozen=True)
class Reply(Generic[Answer]):
    """The answer to the task at a position; None: it was not looked at, or its worker was lost."""

    position: int
    answer: Answer | None
    lost: bool = False


class Round(Protocol[Task, Answer]):
    """A crew at work on one queue."""

    @property
    def room(self) -> int:
        """How many tasks the next batch may hold; 0 while all are at work."""

    def submit(self, batch: "Sequence[Asked[Task]]") -> None:
        """Hands a batch to a worker."""

    def receive(self, timeout_s: float) -> "list[Reply[Answer]]":
        """What has come by then; every task that was submitted is replied to."""

    def halt(self) -> None:
        """Tells all to hand over what they have."""


class Crew(Protocol):
    """Workers that live as long as a search."""

    def round(
        self, answerer: Answerer[Task, Answer], size: int, stop: Stop
    ) -> AbstractContextManager[Round[Task, Answer]]:
        """Puts them to work on a queue of about that size."""


class Losses:
    """How many workers were lost at every task, by what names it."""

    def __init__(self) -> None:
        self._lost = Counter[Hashable]()

    def add(self, task: Hashable) -> None:
        """One more, who may have died of it."""
        self._lost[task] += 1

    def suspect(self, task: Hashable) -> bool:
        """Whether one was lost at it."""
        return task in self._lost

    def fatal(self, task: Hashable, name: str) -> bool:
        """Whether it is given up, which is said in one line that names it."""
        if self._lost[task] < MOST_LOST:
            return False
        _log.warning("%s stays open: %d workers were lost at it", name, MOST_LOST)
        return True


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
    def round(
        self, answerer: Answerer[Task, Answer], size: int, stop: Stop
    ) -> Iterator[Round[Task, Answer]]:
        """New forks for every queue."""
        round_ = _ForkRound(answerer, stop)
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


class _ForkRound(Generic[Task, Answer]):
    """Workers with one task each, which they have from their pipe."""

    def __init__(self, answerer: Answerer[Task, Answer], stop: Stop) -> None:
        self.answerer, self.stop = answerer, stop
        self.context: ForkContext = multiprocessing.get_context("fork")
        self.halted = self.context.RawValue("b", 0)  # shared, and no lock to die with
        self.workers: list[_Worker] = []

    @property
    def room(self) -> int:
        """One task for everyone who has none."""
        return int(any(worker.position is None for worker in self.workers))

    def submit(self, batch: Sequence[Asked[Task]]) -> None:
        """To the first who has nothing to do; if it has died, its reply will be missed."""
        worker = next(worker for worker in self.workers if worker.position is None)
        for asked in batch:
            worker.position = asked.position
            with suppress(OSError):
                worker.connection.send(asked)

    def halt(self) -> None:
        """All see it when they next ask whether to stop."""
        self.halted.value = 1

    def receive(self, timeout_s: float) -> list[Reply[Answer]]:
        """From all who have replied; a worker that has died is replaced."""
        by_connection = {worker.connection: worker for worker in self.workers}
        replies = list[Reply[Answer]]()
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
        for other in others:  # so that it hears when the search was killed
            other.close()
        with suppress(EOFError, OSError):
            while True:
                asked: Asked[Task] = connection.recv()
                answer = self.answerer.answer(
                    asked.task, asked.best, lambda: bool(self.halted.value) or self.stop()
                )
                connection.send(Reply(asked.position, answer))
