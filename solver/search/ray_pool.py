"""A crew of Ray actors, on this machine or on many: `pip install 'hetplan[ray]'`."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from formulations.errors import PlannerError
from solver.files import HETPLAN_VERSION
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import Stop
from solver.search.fathoming import Answer, Closer, Task
from solver.search.speculation import Crew, Lost

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


class Worker:
    """An actor of two threads: one answers, the other hears when it is to end."""

    def __init__(self) -> None:
        self._halted = 0
        self._problem: tuple[Any, Closer] | None = None

    def version(self) -> str:
        """Of hetplan, once it is up."""
        return HETPLAN_VERSION

    def halt(self, number: int) -> None:
        """Tasks of rounds up to this one are handed over as they are."""
        self._halted = number

    def answer(self, problem: list[Any], number: int, task: Task, best: float | None) -> Answer:
        """To a task of a round; `problem`: where it lies, for it is fetched once."""
        if self._problem is None or self._problem[0] != problem[0]:
            instance, options, engine = _ray().get(problem[0])
            self._problem = problem[0], Closer(instance, options, engine, TimeTables(instance))
        return self._problem[1].answer(task, best, lambda: self._halted >= number)


class RayCrew(Crew):
    """Workers that are started when the first queue is long enough, and stay for the next one."""

    def __init__(self, ray: Any, workers: int, address: str | None) -> None:
        super().__init__(workers)
        self.ray, self.address, self.rounds = ray, address, 0
        self._sent: tuple[Closer, Any] | None = None
        self._failed, self._started = 0, False

    @contextmanager
    def round(self, closer: Closer, size: int, stop: Stop) -> Iterator[None]:
        """The same workers for every queue; what they are still at when it ends is not awaited."""
        if not self.rounds:
            self._connect()
        self.rounds += 1
        if self._sent is None or self._sent[0] is not closer:  # once for all queues of a search
            alone = replace(closer.options, time_limit_s=None)
            self._sent = closer, self.ray.put((closer.instance, alone, closer.engine))
        try:
            yield
        finally:
            self.halt()
            self.busy = {ref: (worker, None) for ref, (worker, _) in self.busy.items()}

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
            self.start()

    def start(self) -> None:
        """One more actor, which is idle once it is up."""
        worker = self.ray.remote(num_cpus=1, max_concurrency=2)(Worker).remote()
        self.busy[worker.version.remote()] = worker, None

    def halt(self) -> None:
        """All hear it beside their work."""
        for worker, position in self.busy.values():
            if position is not None:
                worker.halt.remote(self.rounds)

    def _ask(self, worker: Any, task: Task, best: float | None) -> Any:
        assert self._sent is not None
        return worker.answer.remote([self._sent[1]], self.rounds, task, best)

    def _ready(self, timeout_s: float) -> Sequence[Any]:
        ready: list[Any] = self.ray.wait(list(self.busy), timeout=timeout_s)[0]
        return ready

    def _fetched(self, ready: Any, worker: Any) -> Answer | None:
        errors = self.ray.exceptions
        try:
            said: Answer | str = self.ray.get(ready)
        except (errors.RayActorError, errors.OutOfMemoryError) as error:
            self._failed += not self._started
            if self._failed >= MOST_FAILED:
                reason = f"{self._failed} workers could not start; allowed: {_INSTALL} on all hosts"
                raise PlannerError(f"--engine ray: {reason}") from error
            raise Lost from error
        self._started = True
        if isinstance(said, Answer):
            return said
        if said != HETPLAN_VERSION:
            other_version = f"a worker has hetplan {said}"
            raise PlannerError(
                f"--engine ray: {other_version}; allowed: {HETPLAN_VERSION}, as here"
            )
        return None
