"""A replay that looks at every single tick: slow, plain, and without code of the replay engine."""

from collections import Counter
from collections.abc import Callable

from solver.replay.policy import Recovery
from solver.replay.trace import Trace


class Ticks:
    """One tick per ns. step_ns, pause_ns: by number of ready nodes; no step time: cannot train."""

    def __init__(
        self,
        trace: Trace,
        recovery: Recovery,
        step_ns: Callable[[int], int | None],
        pause_ns: Callable[[int], int],
    ) -> None:
        self.recovery, self.step_ns, self.pause_ns = recovery, step_ns, pause_ns
        self.causes: list[str] = []
        self.steps = self.saved_steps = self.saved_ticks = 0
        self.mode, self.left, self.begun, self.size = "waiting", 0, 0, 0
        self.ready: set[str] = set()
        self.using: set[str] = set()
        self.holders: set[str] | None = None  # of what was trained
        self.old: tuple[int, int] | None = None  # begin and length of the overtaken step
        self.slow = self.regroup = False
        appearing = dict.fromkeys(trace.nodes, recovery.node_ready_ns)
        for now in range(trace.end_ns):
            at_once = [e for e in trace.events if e.time_ns == now]
            lost = set()
            for event in at_once:
                if event.kind == "join":
                    appearing[event.node] = now + recovery.node_ready_ns
                elif appearing.pop(event.node, None) is None:
                    lost.add(event.node)
            dead = (self.ready if self.mode == "reconfiguration" else self.using) & lost
            self.ready -= lost
            if self.holders is not None:
                self.holders -= lost
            if dead:
                self._fail(now, len(dead))
            self._complete(now)
            if new := {node for node, at in appearing.items() if at == now}:
                self.ready |= new
                appearing = {n: at for n, at in appearing.items() if n not in new}
                self._join(now)
                self._complete(now)
            self.causes.append(self.mode)
            self.left -= 1
        self._complete(trace.end_ns)
        self._overtaken(trace.end_ns, over=True)
        self.causes = ["unfinished" if cause == "step" else cause for cause in self.causes]

    def _begin(self, mode: str, now: int, length: int) -> None:
        self.mode, self.left, self.begun, self.size = mode, length, now, length

    def _relabel(self, first: int, last: int, cause: str) -> None:
        self.causes[first:last] = [cause] * (last - first)

    def _pause(self, now: int, length: int | None = None) -> None:
        self.regroup = False
        if self.holders is not None and not self.holders:
            self._overtaken(now, over=True)
            self._forget(now, now)
        if self.step_ns(len(self.ready)) is None:
            self._overtaken(now, over=True)
            self._begin("waiting", now, 0)
        else:
            usual = self.pause_ns(len(self.ready))
            self._begin("reconfiguration", now, usual if length is None else length)

    def _step(self, now: int) -> None:
        if self.mode == "reconfiguration":
            self.using = set(self.ready)
            self.holders = set(self.ready)
        length = self.step_ns(len(self.using))
        assert length is not None
        self._begin("step", now, length)

    def _overtaken(self, now: int, over: bool) -> None:
        """The step in the background ends now, or is given up if the pause is `over`."""
        if self.old is None:
            return
        begin, length = self.old
        if over:
            if begin <= self.pause_begin:
                self._relabel(begin, self.pause_begin, "lost")
            self.old = None
        elif now == begin + length:
            self._relabel(begin, now, "training")
            self.steps += 1
            self.old = (now, length)

    def _fail(self, now: int, count: int) -> None:
        if self.mode == "waiting":
            return
        helps = self.recovery.in_flight == "slowed"
        if self.mode == "step" and helps and not self.slow and count == 1 and self.holders:
            self.left = self.recovery.slowed_ns(self.left)
            self.slow = True
            return
        fatal = helps and (self.slow or count > 1)
        if self.mode == "reconfiguration":
            self._overtaken(now, over=True)
        if self.mode == "step":
            if self.recovery.in_flight == "background":
                self.old = (self.begun, self.size)
                self.pause_begin = now
            else:
                self._relabel(self.begun, now, "lost")
        if self.recovery.checkpoints:
            self._forget(now, self.old[0] if self.old else now)
        self._pause(now, self.recovery.fatal_pause_ns if fatal else None)

    def _forget(self, now: int, saved: int) -> None:
        """All is lost since the last checkpoint; the next may keep what is trained from `saved`."""
        for i in range(self.saved_ticks, now):
            if self.causes[i] == "training":
                self.causes[i] = "lost"
        self.steps, self.saved_ticks = self.saved_steps, saved

    def _complete(self, now: int) -> None:
        while self.mode != "waiting" and self.left == 0:
            if self.mode == "reconfiguration":
                self._overtaken(now, over=True)
                self.slow = False
                self._step(now)
            elif self.mode == "checkpoint":
                self.saved_ticks, self.saved_steps = now, self.steps
                self._pause(now) if self.regroup else self._step(now)
            else:
                self._relabel(self.begun, now, "training")
                self._relabel(self.begun + self.size, now, "redundant")
                self.steps += 1
                due = self.recovery.checkpoints
                if due and (self.regroup or self.steps - self.saved_steps >= due.every_steps):
                    self._begin("checkpoint", now, due.time_ns)
                elif self.regroup or self.slow:
                    self._pause(now)
                else:
                    self._step(now)
        if self.mode == "reconfiguration":
            self._overtaken(now, over=False)

    def _join(self, now: int) -> None:
        if self.mode == "waiting":
            self._pause(now)
        elif self.mode == "reconfiguration":
            self.left = max(self.left, self.begun + self.pause_ns(len(self.ready)) - now)
        else:
            larger, present = self.step_ns(len(self.ready)), self.step_ns(len(self.using))
            assert present is not None
            self.regroup = larger is not None and larger < present

    @property
    def time_by_cause(self) -> Counter[str]:
        """Ticks per cause."""
        return Counter(self.causes)
