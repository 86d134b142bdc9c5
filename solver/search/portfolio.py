"""Shapes closed one after the other, or by several processes that share the incumbent."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from multiprocessing.sharedctypes import Synchronized

from solver.interrupt import held_back
from solver.result import objective_weight
from solver.search.closer import Closer, Closing, Task
from solver.search.closing import Stop

#: Seconds that interrupted workers have to hand over what they found.
GRACE_S = 1.0

#: Seconds in which one process closes what it can; other processes take a while to start.
ALONE_S = 0.25

#: Objective of the incumbent; None without one.
Best = Callable[[], float | None]


def closings(
    closer: Closer, tasks: Sequence[Task], best: Best, workers: int, stop: Stop
) -> Iterator[Closing]:
    """Closes those of `tasks` that may beat the incumbent, in their order, until `stop` says so.

    Several workers start after a while only; their answers come in no fixed order, and of equal
    plans any may be found.
    """
    forks = workers > 1 and "fork" in multiprocessing.get_all_start_methods()
    alone_until = time.monotonic() + ALONE_S
    for i, task in enumerate(tasks):
        if stop():
            return
        if closer.beyond(task, best()):
            continue
        if forks and time.monotonic() >= alone_until:
            yield from _Workers(closer, tasks[i:], best(), stop).closings(workers)
            return
        yield closer.close(task, best(), stop)


class _Workers:
    """Processes that take the next task, close it with the best objective known, and report."""

    def __init__(
        self, closer: Closer, tasks: Sequence[Task], best: float | None, stop: Stop
    ) -> None:
        self.closer, self.tasks, self.stop = closer, tasks, stop
        self.context: ForkContext = multiprocessing.get_context("fork")
        self.best: Synchronized[float] = self.context.Value(
            "d", float("inf") if best is None else best
        )
        self.next_task: Synchronized[int] = self.context.Value("l", 0)
        self.halted: Synchronized[int] = self.context.Value("b", 0)

    def _known(self) -> float | None:
        return None if self.best.value == float("inf") else self.best.value

    def _stopped(self) -> bool:
        return bool(self.halted.value) or self.stop()

    def _take(self) -> Task | None:
        while not self._stopped():
            with self.next_task.get_lock():
                index = self.next_task.value
                self.next_task.value += 1
            if index >= len(self.tasks):
                break
            if not self.closer.beyond(self.tasks[index], self._known()):
                return self.tasks[index]
        return None

    def _work(self, connection: Connection) -> None:
        """What a worker does: Ctrl-C is for the parent, which tells the workers.

        A plan is on its way to the parent before others may close shapes by it.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while (task := self._take()) is not None:
            closing = self.closer.close(task, self._known(), self._stopped)
            connection.send(closing)
            if closing.found is not None:
                weight = objective_weight(self.closer.instance, task.shape)
                with self.best.get_lock():
                    self.best.value = min(self.best.value, closing.found[1] * weight)
        connection.close()

    def _start(self) -> tuple[ForkProcess, Connection]:
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=self._work, args=(sender,), daemon=True)
        with held_back():  # until the worker ignores it
            process.start()
        sender.close()
        return process, receiver

    def closings(self, workers: int) -> Iterator[Closing]:
        """Answers as they come; a worker that dies leaves its shape open."""
        started = [self._start() for _ in range(min(workers, len(self.tasks)))]
        receivers = [receiver for _, receiver in started]
        try:
            yield from _received(receivers, None)
        except KeyboardInterrupt:
            self.halted.value = 1
            yield from _received(receivers, GRACE_S)
            raise
        finally:
            for process, _ in started:
                process.terminate()
                process.join()


def _received(receivers: list[Connection], timeout_s: float | None) -> Iterator[Closing]:
    """What arrives until all senders have closed, or nothing came for the time given."""
    while receivers:
        ready = wait(receivers, timeout_s)
        if not ready:
            return
        for receiver in ready:
            assert isinstance(receiver, Connection)
            try:
                yield receiver.recv()
            except EOFError:
                receivers.remove(receiver)
