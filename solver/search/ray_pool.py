"""A crew of Ray actors, on this machine or on many: `pip install 'hetplan[ray]'`.

Workers take batches of tasks that fill half a second or more, one batch each at a time. What is
found is told to an actor that holds the incumbents, at which they look while they work.
"""

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from formulations.errors import PlannerError
from solver.files import HETPLAN_VERSION
from solver.search.enumeration import Stop
from solver.search.worker_pool import (
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

#: A worker hands over what it has after so many seconds, or when it has found a plan.
BATCH_S = 0.5
#: Tasks of a batch, unless few are left.
MOST_TASKS = 64
#: Seconds after which a worker looks again at the incumbents.
LOOK_S = 0.1
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


def _look_for(address: str | None) -> None:
    """Raises OSError where nobody listens: Ray itself tries for many minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), LISTEN_S).close()


@cache
def ray_crew(workers: int, address: str | None) -> "RayCrew":
    """The crew of this process. PlannerError without Ray."""
    return RayCrew(_ray(), workers, address)


class Incumbents:
    """An actor: what was found in the round at work, in the order in which it was told."""

    def __init__(self) -> None:
        self._round, self._halted = 0, False
        self._found: list[tuple[int, float]] = []

    def begin(self, number: int) -> None:
        """A new queue."""
        self._round, self._halted, self._found = number, False, []

    def tell(self, position: int, objective: float) -> None:
        """A plan of the task at this position."""
        self._found.append((position, objective))

    def halt(self) -> None:
        """All are to hand over what they have."""
        self._halted = True

    def news(self, number: int, since: int) -> tuple[bool, list[tuple[int, float]]]:
        """Whether to stop, and what was told after the first so many."""
        if number != self._round:
            return True, []
        return self._halted, self._found[since:]


@dataclass(frozen=True)
class Batch:
    """Tasks with what is known of those before them, for a worker that has heard so much."""

    number: int  #: of the round
    heard: int
    asked: tuple[Asked[Any], ...]


class Worker:
    """An actor that replies to batches."""

    def __init__(self, incumbents: Any) -> None:
        self.incumbents = incumbents
        self._known: tuple[Any, Answerer[Any, Any]] | None = None

    def version(self) -> str:
        """Of hetplan, once it is up."""
        return HETPLAN_VERSION

    def replies(self, problem: list[Any], batch: Batch) -> list[Reply[Any]]:
        """To the first tasks of a batch; `problem`: where it lies, for it is fetched once."""
        answerer, news, heard = self._answerer(problem[0]), News(), batch.heard
        begin_s = looked_s = time.monotonic()

        def hear() -> None:
            nonlocal heard, looked_s
            if time.monotonic() < looked_s + LOOK_S:
                return
            halted, found = _ray().get(self.incumbents.news.remote(batch.number, heard))
            heard, looked_s, news.halted = heard + len(found), time.monotonic(), halted
            for one in found:
                news.add(*one)

        replies = list[Reply[Any]]()
        for asked in batch.asked:
            reply = reply_to(answerer, asked, news, hear, lambda: False)
            replies.append(reply)
            found = reply.answer and answerer.objective(asked.task, reply.answer)
            if found is not None or news.halted or time.monotonic() >= begin_s + BATCH_S:
                break
        return replies

    def _answerer(self, problem: Any) -> Answerer[Any, Any]:
        if self._known is None or self._known[0] != problem:
            self._known = problem, _ray().get(problem)()
        return self._known[1]


class RayCrew:
    """Workers that are started when the first queue is long enough, and stay."""

    def __init__(self, ray: Any, workers: int, address: str | None) -> None:
        self.ray, self.workers, self.address = ray, workers, address
        self.rounds = 0
        self.idle: list[Any] = []
        self.busy: dict[Any, tuple[Any, Batch | None]] = {}
        self.incumbents: Any = None
        self._sent: tuple[Answerer[Any, Any], Any] | None = None
        self._failed, self._started = 0, False

    @contextmanager
    def round(
        self, answerer: Answerer[Task, Answer], size: int, stop: Stop
    ) -> Iterator[Round[Task, Answer]]:
        """The same workers for every queue; what they are still at when it ends is not awaited."""
        if self.incumbents is None:
            self._connect()
        self.rounds += 1
        self.ray.get(self.incumbents.begin.remote(self.rounds))
        yield _RayRound(self, self._problem(answerer), size)

    def _connect(self) -> None:
        """Joins a Ray cluster, or starts one here."""
        ray = self.ray
        quiet = {"logging_level": "error", "log_to_driver": False}
        here = {"num_cpus": self.workers, "include_dashboard": False}
        try:
            if not ray.is_initialized():
                _look_for(self.address)
                ray.init(address=self.address, **quiet, **({} if self.address else here))
        except Exception as error:  # Ray raises OSError too, and bare ones from nodes
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            where = self.address or "this machine"
            raise PlannerError(f"--engine ray: no Ray cluster at {where}: {reason}") from error
        own = ray.get_runtime_context().get_node_id()
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(own, soft=True)
        actor = ray.remote(num_cpus=0, scheduling_strategy=strategy)(Incumbents)
        self.incumbents = actor.remote()
        self.workers = min(self.workers, int(ray.cluster_resources().get("CPU", 1)))
        for _ in range(self.workers):
            self.start()

    def start(self) -> None:
        """One more worker, which is idle once it is up."""
        worker = self.ray.remote(num_cpus=1)(Worker).remote(self.incumbents)
        self.busy[worker.version.remote()] = worker, None

    def _problem(self, answerer: Answerer[Task, Answer]) -> Any:
        """Where the problem lies; it is sent once for all queues of a search."""
        if self._sent is None or self._sent[0] is not answerer:
            self._sent = answerer, self.ray.put(answerer.elsewhere())
        return self._sent[1]

    def receive(self, timeout_s: float) -> list[tuple[Batch, list[Reply[Any]] | None]]:
        """Batches that are done, with their replies; None: their worker was lost."""
        ready, _ = self.ray.wait(list(self.busy), timeout=timeout_s)
        done = []
        for ref in ready:
            worker, batch = self.busy.pop(ref)
            replies = self._fetched(ref)
            if replies is None:
                self.start()
            else:
                self.idle.append(worker)
            if batch is not None:
                done.append((batch, replies if isinstance(replies, list) else None))
        return done

    def _fetched(self, ref: Any) -> list[Reply[Any]] | str | None:
        """What a worker says; None if it was lost."""
        errors = self.ray.exceptions
        try:
            said: list[Reply[Any]] | str = self.ray.get(ref)
        except (errors.RayActorError, errors.OutOfMemoryError) as error:
            self._failed += not self._started
            if self._failed >= MOST_FAILED:
                reason = f"{self._failed} workers could not start; allowed: {_INSTALL} on all hosts"
                raise PlannerError(f"--engine ray: {reason}") from error
            warn_of_loss()
            return None
        if isinstance(said, str) and said != HETPLAN_VERSION:
            found = f"a worker has hetplan {said}"
            raise PlannerError(f"--engine ray: {found}; allowed: {HETPLAN_VERSION}, as here")
        self._started = True
        return said


class _RayRound:
    def __init__(self, crew: RayCrew, problem: Any, size: int) -> None:
        self.crew, self.problem = crew, problem
        self.number, self.told, self.left = crew.rounds, 0, size

    @property
    def room(self) -> int:
        """A batch for everyone who has none; smaller ones towards the end."""
        if not self.crew.idle:
            return 0
        return max(1, min(MOST_TASKS, self.left // (4 * self.crew.workers)))

    def submit(self, batch: Sequence[Asked[Any]]) -> None:
        """To the one who has waited longest."""
        worker = self.crew.idle.pop(0)
        sent = Batch(self.number, self.told, tuple(batch))
        self.left = max(0, self.left - len(batch))
        self.crew.busy[worker.replies.remote([self.problem], sent)] = worker, sent

    def tell(self, position: int, objective: float) -> None:
        """By the actor of incumbents."""
        self.told += 1
        self.crew.incumbents.tell.remote(position, objective)

    def halt(self) -> None:
        """By the same."""
        self.crew.incumbents.halt.remote()

    def receive(self, timeout_s: float) -> list[Reply[Any]]:
        """Every task of a batch is replied to, also those that there was no time for."""
        found = list[Reply[Any]]()
        for batch, replies in self.crew.receive(timeout_s):
            if batch.number != self.number:
                continue
            positions = [asked.position for asked in batch.asked]
            known = {reply.position: reply for reply in replies or ()}
            lost = replies is None
            found += [known.get(p, Reply(p, None, lost)) for p in positions]
        return found
