"""A crew of processes on this machine: forks of the search, which know what it knows."""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from typing import Generic

from solver.interrupt import held_back
from solver.search.closing import Stop
from solver.search.crew import (
    Answer,
    Answerer,
    Asked,
    News,
    Reply,
    Round,
    Task,
    reply_to,
    warn_of_loss,
)

#: What a worker is sent: a task, news of a plan (its task's position and objective), or a halt.
Message = Asked[Task] | tuple[int, float] | None


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
        found = _ForkRound(answerer, stop)
        try:
            for _ in range(min(self.workers, size)):
                found.start()
            yield found
        finally:
            found.end()


@dataclass
class _Worker:
    process: ForkProcess
    connection: Connection
    busy: set[int] = field(default_factory=set)


class _ForkRound(Generic[Task, Answer]):
    def __init__(self, answerer: Answerer[Task, Answer], stop: Stop) -> None:
        self.answerer, self.stop = answerer, stop
        self.context: ForkContext = multiprocessing.get_context("fork")
        self.workers: list[_Worker] = []

    @property
    def room(self) -> int:
        """One task for everyone who has none."""
        return int(any(not worker.busy for worker in self.workers))

    def submit(self, batch: Sequence[Asked[Task]]) -> None:
        """To the first who has nothing to do."""
        worker = next(one for one in self.workers if not one.busy)
        for asked in batch:
            worker.busy.add(asked.position)
            _send(worker, asked)

    def tell(self, position: int, objective: float) -> None:
        """To those who are busy: the others hear of it with their next task."""
        for worker in self.workers:
            if worker.busy:
                _send(worker, (position, objective))

    def halt(self) -> None:
        """To all."""
        for worker in self.workers:
            _send(worker, None)

    def receive(self, timeout_s: float) -> list[Reply[Answer]]:
        """From all who have replied; a worker that has died is replaced."""
        by_connection = {worker.connection: worker for worker in self.workers}
        replies = list[Reply[Answer]]()
        for ready in wait(list(by_connection), timeout_s):
            assert isinstance(ready, Connection)
            worker = by_connection[ready]
            try:
                reply: Reply[Answer] = ready.recv()
            except (EOFError, OSError):
                warn_of_loss()
                replies += [Reply(position, None, lost=True) for position in worker.busy]
                self._bury(worker)
                self.start()
            else:
                worker.busy.discard(reply.position)
                replies.append(reply)
        return replies

    def start(self) -> None:
        """One more worker."""
        own, theirs = self.context.Pipe()
        others = [own, *(worker.connection for worker in self.workers)]
        process = self.context.Process(target=self._work, args=(theirs, others), daemon=True)
        with held_back():  # until the worker ignores it
            process.start()
        theirs.close()
        self.workers.append(_Worker(process, own))

    def end(self) -> None:
        """Ends all."""
        for worker in list(self.workers):
            self._bury(worker)

    def _bury(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.connection.close()
        worker.process.terminate()
        worker.process.join()

    def _work(self, connection: Connection, others: Sequence[Connection]) -> None:
        """What a worker does, until the search ends; Ctrl-C is for the search, which tells it."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for other in others:  # so that it hears when the search was killed
            other.close()
        news = News()

        def take(message: Message[Task]) -> Asked[Task] | None:
            if isinstance(message, Asked):
                return message
            if message is None:
                news.halted = True
            else:
                news.add(*message)
            return None

        def hear() -> None:
            while connection.poll():
                take(connection.recv())

        try:
            while True:
                asked = take(connection.recv())
                if asked is not None:
                    connection.send(reply_to(self.answerer, asked, news, hear, self.stop))
                    news = News()
        except (EOFError, OSError):
            return


def _send(worker: _Worker, message: Message[Task]) -> None:
    """If the worker has died, that shows when its reply is missed."""
    with suppress(OSError):
        worker.connection.send(message)
