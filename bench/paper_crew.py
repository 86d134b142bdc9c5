"""A crew of any number of workers on paper: this process does their work, one task after the other.

Every answer counts as done when a worker who had begun it when it was handed out, and who takes the
processor time that it took here, would be done; the driver's own processor time passes for all. So
a search goes just as with so many workers, whatever else it asks ahead of its turn.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic

from solver.search.enumeration import Stop
from solver.search.worker_pool import Answer, Answerer, Asked, Reply, Round, Task


class PaperCrew:
    """So many workers. now_s: on paper. work_s: of all tasks, in the order of their ends."""

    def __init__(self, workers: int) -> None:
        self.workers, self.now_s, self._left_s = workers, 0.0, time.process_time()
        self.work_s: list[float] = []

    @contextmanager
    def round(
        self, answerer: Answerer[Task, Answer], size: int, stop: Stop
    ) -> Iterator[Round[Task, Answer]]:
        """All of them, idle."""
        yield _PaperRound(self, answerer)

    def pass_by(self) -> None:
        """Lets the time pass that the driver has taken since it was here."""
        self.now_s += time.process_time() - self._left_s
        self.leave()

    def leave(self) -> None:
        """From now on the driver is at work."""
        self._left_s = time.process_time()


class _PaperRound(Generic[Task, Answer]):
    def __init__(self, crew: PaperCrew, answerer: Answerer[Task, Answer]) -> None:
        self.crew, self.answerer = crew, answerer
        self.busy: list[tuple[float, Reply[Answer]]] = []

    @property
    def room(self) -> int:
        """One task for everyone who has none."""
        return int(len(self.busy) < self.crew.workers)

    def submit(self, batch: Sequence[Asked[Task]]) -> None:
        """Works it out at once; its end is on paper."""
        self.crew.pass_by()
        end_s = self.crew.now_s
        for asked in batch:
            began_s = time.process_time()
            answer = self.answerer.answer(asked.task, asked.best, lambda: False)
            self.crew.work_s.append(time.process_time() - began_s)
            end_s += self.crew.work_s[-1]
            self.busy.append((end_s, Reply(asked.position, answer)))
        self.crew.leave()

    def halt(self) -> None:
        """Answers are whole already."""

    def receive(self, timeout_s: float) -> list[Reply[Answer]]:
        """All that are done by now, or else the next; none if that takes longer."""
        self.crew.pass_by()
        next_s = min((end_s for end_s, _ in self.busy), default=self.crew.now_s)
        self.crew.now_s = max(self.crew.now_s, min(next_s, self.crew.now_s + timeout_s))
        done = [reply for end_s, reply in self.busy if end_s <= self.crew.now_s]
        self.busy = [one for one in self.busy if one[0] > self.crew.now_s]
        return done
