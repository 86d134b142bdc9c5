"""Workers that answer ahead of the search: what they are asked, and processes of this machine.

Nobody tells them of plans that others find while they are at work: a task whose question has
changed by then is asked again. (With news of plans two workers took as much processor time.)
"""

import logging
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from typing import Protocol

from solver.interrupt import Stop, held_back
from solver.search.fathoming import Answer, Closer, Task

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
