"""A queue of shapes that a crew works on ahead of their turn, closed in the order of the queue.

Every task is asked with the best objective that is known of those before it in the queue. At its
turn all of those are closed: what it was asked is what one process alone would have asked, or it
is asked again, unless nothing was found below a higher cutoff. So plan, bound and log do not depend
on the number of workers, on their speed, or on which of them are lost.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence

from solver.search.enumeration import Stop
from solver.search.fathoming import Answer, Closer, Closing, Task
from solver.search.worker_pool import Asked, Best, Crew, Losses, Reply, Round

#: Seconds between two looks at the time.
LOOK_S = 0.1
#: Seconds that workers have to hand over what they found, when the search is stopped.
GRACE_S = 1.0


class Ahead:
    """State of one queue: what waits, what workers are at, what was answered before its turn."""

    def __init__(
        self,
        closer: Closer,
        tasks: Sequence[Task],
        best: Callable[[], Best],
        crew: Crew,
        stop: Stop,
    ) -> None:
        self.closer, self.tasks, self.best, self.crew, self.stop = closer, tasks, best, crew, stop
        self.waiting = list(range(len(tasks)))  # a heap
        self.at_work = set[int]()
        self.early = dict[int, Answer]()
        self.found: list[tuple[int, float]] = []
        self.losses = Losses()

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

    def _turn(self, round_: Round[Task, Answer], position: int, task: Task) -> Closing | None:
        """How a task is closed when all before it are; None if it need not be, or when stopped."""
        self.found = [one for one in self.found if one[0] >= position]  # the others are closed
        while not self.closer.beyond(task, self.best()) and not self.stop():
            early = self.early.pop(position, None)
            known = self.closer.known(task, self.best(), early)
            if known is not None:
                return known
            if self.losses.fatal(position, "a shape"):
                return self.closer.by_bound(task, self.best())
            heapq.heappush(self.waiting, position)
            self._hand_out(round_)
            self._take(round_, LOOK_S)
        return None

    def _hand_out(self, round_: Round[Task, Answer]) -> None:
        """Batches for all that have nothing to do, those first whose turn comes first."""
        while (room := round_.room) and (batch := self._batch(room)):
            self.at_work.update(asked.position for asked in batch)
            round_.submit(batch)

    def _batch(self, room: int) -> list[Asked[Task]]:
        """The next tasks; one of which a worker may have died goes alone."""
        batch = list[Asked[Task]]()
        while len(batch) < room and (asked := self._next()) is not None:
            alone = self.losses.suspect(asked.position)
            if alone and batch:
                heapq.heappush(self.waiting, asked.position)
                return batch
            batch.append(asked)
            if alone:
                return batch
        return batch

    def _next(self) -> Asked[Task] | None:
        """The first task of the queue that is still to be asked."""
        while self.waiting:
            position = heapq.heappop(self.waiting)
            if position in self.at_work or position in self.early:
                continue
            task, best = self.tasks[position], self._best_before(position)
            if not self.closer.beyond(task, best) and self.closer.known(task, best) is None:
                return Asked(position, task, best)
        return None

    def _best_before(self, position: int) -> Best:
        """The best objective that is known of the tasks before this one."""
        early = [objective for other, objective in self.found if other < position]
        known = self.best()
        return min([*early, *([] if known is None else [known])], default=None)

    def _take(self, round_: Round[Task, Answer], timeout_s: float) -> None:
        for reply in round_.receive(timeout_s):
            self._note(round_, reply)

    def _note(self, round_: Round[Task, Answer], reply: Reply[Answer]) -> None:
        position, answer = reply.position, reply.answer
        self.at_work.discard(position)
        if reply.lost:
            self.losses.add(position)
        if answer is None:
            heapq.heappush(self.waiting, position)
            return
        task = self.tasks[position]
        self.closer.answers.keep(task.shape, answer)
        self.early[position] = answer
        objective, known = self.closer.objective(task, answer), self._best_before(position + 1)
        if objective is not None and (known is None or objective < known):
            self.found.append((position, objective))
            round_.tell(position, objective)
            self._ask_again()

    def _ask_again(self) -> None:
        """Those whose answers a better plan of an earlier one has made obsolete."""
        for position, answer in list(self.early.items()):
            task, best = self.tasks[position], self._best_before(position)
            if not answer.replies(self.closer.question(task, best)):
                del self.early[position]
                self.found = [one for one in self.found if one[0] != position]
                heapq.heappush(self.waiting, position)

    def _rescued(self, round_: Round[Task, Answer]) -> Iterator[Closing]:
        """What workers know when they are stopped: no bound and no plan is lost."""
        round_.halt()
        while self.at_work:
            replies = round_.receive(GRACE_S)
            if not replies:
                break
            for reply in replies:
                self._note(round_, reply)
        for position, answer in sorted(self.early.items()):
            yield self.closer.closing(self.tasks[position], self.best(), answer)
