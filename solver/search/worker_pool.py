"""Workers that answer ahead of the search: what they are told, and processes of this machine."""

import logging
import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from typing import Generic, Protocol, TypeVar

from solver.interrupt import held_back
from solver.search.enumeration import Stop

_log = logging.getLogger(__name__)

#: Objective that plans have to be below; None: any.
Best = float | None
#: Seconds after which a worker looks again whether there is news.
LOOK_S = 0.02
#: A task that so many workers died of stays open.
MOST_LOST = 3

Task = TypeVar("Task")
Answer = TypeVar("Answer", bound="Said")


class Said(Protocol):
    """An answer."""

    @property
    def cut_short(self) -> bool:
        """Whether it was stopped before its effort was spent."""


class Answerer(Protocol[Task, Answer]):
    """Who answers: all that a worker has to know of a problem."""

    def needless(self, task: Task, best: Best) -> bool:
        """Whether there is nothing to ask."""

    def answer(self, task: Task, best: Best, stop: Stop) -> Answer:
        """What there is to say, until `stop`."""

    def objective(self, task: Task, answer: Answer) -> Best:
        """Of the plan of an answer, below which other tasks' plans have to be."""

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

    def tell(self, position: int, objective: float) -> None:
        """Tells all of a plan that was found, for tasks behind that position."""

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


class News:
    """What a worker hears of plans since it was handed a batch, by the position of their tasks."""

    def __init__(self) -> None:
        self.halted = False
        self._found: list[tuple[int, float]] = []

    def add(self, position: int, objective: float) -> None:
        """A plan of the task at this position."""
        self._found.append((position, objective))

    def best(self, position: int, known: Best) -> Best:
        """The best objective of the tasks before this one."""
        heard = [objective for before, objective in self._found if before < position]
        return min([*heard, *([] if known is None else [known])], default=None)


def warn_of_loss() -> None:
    """One line, whoever was lost."""
    _log.warning("a worker was lost; another one does its work again")


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


def reply_to(
    answerer: Answerer[Task, Answer],
    asked: Asked[Task],
    news: News,
    hear: Callable[[], None],
    stop: Stop,
) -> Reply[Answer]:
    """What a worker replies, with every incumbent that it hears of before the task's turn.

    A question that news has made obsolete is asked anew. `hear` brings news up to date.
    """
    hear()
    heard_s = time.monotonic()

    def best() -> Best:
        return news.best(asked.position, asked.best)

    while not news.halted and not stop():
        used = best()
        if answerer.needless(asked.task, used):
            break

        def obsolete(used: Best = used) -> bool:
            nonlocal heard_s
            if time.monotonic() >= heard_s + LOOK_S:
                hear()
                heard_s = time.monotonic()
            return news.halted or best() != used or stop()

        answer = answerer.answer(asked.task, used, obsolete)
        if not answer.cut_short or best() == used:
            return Reply(asked.position, answer)
    return Reply(asked.position, None)


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
