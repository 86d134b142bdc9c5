"""A crew of Ray actors, on this machine or on many: `pip install 'hetplan[ray]'`.

Workers take batches of tasks that fill half a second or more, one batch each at a time.
"""

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from formulations.errors import PlannerError
from solver.files import HETPLAN_VERSION
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import Stop
from solver.search.fathoming import Closer
from solver.search.speculation import Asked, Reply, Round, warn_of_loss

#: A worker hands over what it has after so many seconds.
BATCH_S = 0.5
#: Tasks of a batch, unless few are left.
MOST_TASKS = 64
#: Seconds for a Ray cluster to answer that it is there.
LISTEN_S = 10.0
#: So many workers may fail to start, before one has.
MOST_FAILED = 3

_INSTALL = "pip install 'hetplan[ray]'"


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise PlannerError(f"--engine ray: Ray is not installed; allowed: {_INSTALL}") from None
    return ray


@cache
def ray_crew(workers: int, address: str | None) -> "RayCrew":
    """The crew of this process. PlannerError without Ray."""
    return RayCrew(_ray(), workers, address)


@dataclass(frozen=True)
class Batch:
    """Tasks for a worker."""

    number: int  #: of the round
    asked: tuple[Asked, ...]


class Worker:
    """An actor of two threads: one replies to batches, the other hears when they are to end."""

    def __init__(self) -> None:
        self._halted = 0
        self._problem: tuple[Any, Closer] | None = None

    def version(self) -> str:
        """Of hetplan, once it is up."""
        return HETPLAN_VERSION

    def halt(self, number: int) -> None:
        """Batches of rounds up to this one are handed over as they are."""
        self._halted = number

    def replies(self, problem: list[Any], batch: Batch) -> list[Reply]:
        """To the first tasks of a batch; `problem`: where it lies, for it is fetched once."""
        if self._problem is None or self._problem[0] != problem[0]:
            instance, options, engine = _ray().get(problem[0])
            self._problem = problem[0], Closer(instance, options, engine, TimeTables(instance))
        closer, begin_s = self._problem[1], time.monotonic()

        def halted() -> bool:
            return self._halted >= batch.number

        replies = list[Reply]()
        for asked in batch.asked:
            answer = closer.answer(asked.task, asked.best, halted)
            replies.append(Reply(asked.position, answer))
            if halted() or time.monotonic() >= begin_s + BATCH_S:
                break
        return replies


class RayCrew:
    """Workers that are started when the first queue is long enough, and stay for the next one.

    rounds: queues so far; waiting: tasks of this one that nobody was handed yet.
    """

    def __init__(self, ray: Any, workers: int, address: str | None) -> None:
        self.ray, self.workers, self.address = ray, workers, address
        self.rounds = self.waiting = 0
        self.idle: list[Any] = []
        self.busy: dict[Any, tuple[Any, Batch | None]] = {}
        self._sent: tuple[Closer, Any] | None = None
        self._failed, self._started = 0, False

    @contextmanager
    def round(self, closer: Closer, size: int, stop: Stop) -> Iterator[Round]:
        """The same workers for every queue; what they are still at when it ends is not awaited."""
        if not self.rounds:
            self._connect()
        self.rounds, self.waiting = self.rounds + 1, size
        if self._sent is None or self._sent[0] is not closer:  # once for all queues of a search
            alone = replace(closer.options, time_limit_s=None)
            self._sent = closer, self.ray.put((closer.instance, alone, closer.engine))
        try:
            yield self
        finally:
            self.halt()

    def _connect(self) -> None:
        """Joins a Ray cluster, or starts one here."""
        ray = self.ray
        quiet = {"logging_level": "error", "log_to_driver": False}
        here = {"num_cpus": self.workers, "include_dashboard": False}
        try:
            if not ray.is_initialized():
                # Nobody may listen, and Ray itself tries for many minutes.
                host, _, port = (self.address or "").removeprefix("ray://").rpartition(":")
                if host and port.isdigit():
                    socket.create_connection((host.strip("[]"), int(port)), LISTEN_S).close()
                ray.init(address=self.address, **quiet, **({} if self.address else here))
        except Exception as error:  # Ray raises OSError too, and bare ones from nodes
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            where = self.address or "this machine"
            raise PlannerError(f"--engine ray: no Ray cluster at {where}: {reason}") from error
        self.workers = min(self.workers, int(ray.cluster_resources().get("CPU", 1)))
        for _ in range(self.workers):
            self._start()

    def _start(self) -> None:
        """One more worker, which is idle once it is up."""
        worker = self.ray.remote(num_cpus=1, max_concurrency=2)(Worker).remote()
        self.busy[worker.version.remote()] = worker, None

    @property
    def room(self) -> int:
        """A batch for everyone who has none; smaller ones towards the end."""
        return max(1, min(MOST_TASKS, self.waiting // (4 * self.workers))) if self.idle else 0

    def submit(self, batch: Sequence[Asked]) -> None:
        """To the one who has waited longest."""
        assert self._sent is not None
        worker, sent = self.idle.pop(0), Batch(self.rounds, tuple(batch))
        self.waiting = max(0, self.waiting - len(batch))
        self.busy[worker.replies.remote([self._sent[1]], sent)] = worker, sent

    def halt(self) -> None:
        """All hear it beside their work."""
        for worker, batch in self.busy.values():
            if batch is not None:
                worker.halt.remote(self.rounds)

    def receive(self, timeout_s: float) -> list[Reply]:
        """Every task of a batch is replied to, also those that there was no time for."""
        ready, _ = self.ray.wait(list(self.busy), timeout=timeout_s)
        replies = list[Reply]()
        for ref in ready:
            worker, batch = self.busy.pop(ref)
            said = self._fetched(ref)
            if said is None:
                self._start()
            else:
                self.idle.append(worker)
            if batch is not None and batch.number == self.rounds:
                answered = {reply.position: reply for reply in said} if said else {}
                replies += [
                    answered.get(asked.position, Reply(asked.position, None, lost=said is None))
                    for asked in batch.asked
                ]
        return replies

    def _fetched(self, ref: Any) -> list[Reply] | None:
        """What a worker says, nothing but its version at first; None if it was lost."""
        errors = self.ray.exceptions
        try:
            said: list[Reply] | str = self.ray.get(ref)
        except (errors.RayActorError, errors.OutOfMemoryError) as error:
            self._failed += not self._started
            if self._failed >= MOST_FAILED:
                reason = f"{self._failed} workers could not start; allowed: {_INSTALL} on all hosts"
                raise PlannerError(f"--engine ray: {reason}") from error
            warn_of_loss()
            return None
        self._started = True
        if isinstance(said, list):
            return said
        if said != HETPLAN_VERSION:
            other_version = f"a worker has hetplan {said}"
            raise PlannerError(
                f"--engine ray: {other_version}; allowed: {HETPLAN_VERSION}, as here"
            )
        return []
