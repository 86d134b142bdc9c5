"""Workers that answer ahead of the search: what they and the search tell each other."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from solver.search.closing import Stop

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
    hear_seldom = _every(LOOK_S, hear)

    def best() -> Best:
        return news.best(asked.position, asked.best)

    while not news.halted and not stop():
        used = best()
        if answerer.needless(asked.task, used):
            break

        def obsolete(used: Best = used) -> bool:
            hear_seldom()
            return news.halted or best() != used or stop()

        answer = answerer.answer(asked.task, used, obsolete)
        if not answer.cut_short or best() == used:
            return Reply(asked.position, answer)
    return Reply(asked.position, None)


def _every(seconds: float, hear: Callable[[], None]) -> Callable[[], None]:
    """The same, no more often than that."""
    last_s = time.monotonic()

    def seldom() -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s >= last_s + seconds:
            last_s = now_s
            hear()

    return seldom
