"""A failure trace played through a recovery policy: samples trained, and where the time went.

A failure at the very end of a step comes before it; a run that ends there includes it. Where no
node is left that holds some layer, or none at all that trained, all is lost since the last
checkpoint, or since the begin.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from formulations.errors import PlannerError
from solver.replay.policy import Configuration, Policy
from solver.replay.spans import Cause, Replay, Span, joined
from solver.replay.trace import Trace

MOST_SPANS = 1_000_000


def replay(trace: Trace, policy: Policy, stop: Callable[[], bool] = lambda: False) -> Replay:
    """Plays the trace; nothing is random. PlannerError for a run of more than MOST_SPANS spans.

    A node that joins is used from the next reconfiguration on; if it makes the step shorter, that
    comes at the end of the step in flight (after a checkpoint where the policy writes any). Where
    `stop` says so, the run ends before the next failure or join, and is not complete.
    """
    run, complete = _Run(policy), True
    end_ns = trace.end_ns
    for (time_ns, is_join), alarms in groupby(_alarms(trace, policy), key=lambda a: a[:2]):
        if time_ns > 0 and stop():
            complete, end_ns = False, time_ns
            break
        run.advance(time_ns, inclusive=is_join)
        nodes = frozenset(node for _, _, node in alarms)
        if is_join:
            run.join(nodes)
        else:
            run.fail(nodes)
    run.advance(end_ns, inclusive=True)
    run.close(end_ns, inclusive=True)
    return Replay(tuple(joined(run.spans)), policy.samples_per_step, complete)


def _alarms(trace: Trace, policy: Policy) -> list[tuple[int, bool, str]]:
    """(time, whether a node gets ready or else fails, node), in order, failures first.

    A node that fails before or when it gets ready is never noticed.
    """
    delay_ns = policy.recovery.node_ready_ns
    coming_ns = dict.fromkeys(trace.nodes, delay_ns)
    alarms = []
    for event in trace.events:
        ready_ns = coming_ns.pop(event.node, None)
        if event.kind == "join":
            coming_ns[event.node] = event.time_ns + delay_ns
        elif ready_ns is None or ready_ns < event.time_ns:
            alarms.append((event.time_ns, False, event.node))
            alarms += [] if ready_ns is None else [(ready_ns, True, event.node)]
    alarms += [(time_ns, True, node) for node, time_ns in coming_ns.items()]
    return sorted(alarm for alarm in alarms if alarm[0] < trace.end_ns)


@dataclass(frozen=True)
class _Activity:
    """What is going on; waiting has no end. nodes: ready ones when it began."""

    kind: Literal["step", "checkpoint", "pause", "waiting"]
    start_ns: int
    end_ns: int | None
    nodes: int


class _Run:
    """The state while a trace is played; spans cover all time before the current activity."""

    def __init__(self, policy: Policy) -> None:
        self.spans: list[Span] = []
        self._reconfigure = policy.reconfigure
        self._recovery = policy.recovery
        self._ready: frozenset[str] = frozenset()
        self._former: Configuration | None = None  # the one before the pause
        self._current: Configuration | None = None
        self._background: _Activity | None = None  # a step that a failure has overtaken
        self._slowed = False
        self._regroup = False  # reconfigure after the step in flight
        self._unsaved = 0  # index of the first span after the last whole checkpoint
        self._unsaved_steps = 0
        self._activity = _Activity("waiting", 0, None, 0)
        self._now_ns = 0

    def advance(self, time_ns: int, inclusive: bool) -> None:
        """Ends every activity that is over before `time_ns`, or at it if `inclusive`."""
        while (end_ns := self._activity.end_ns) is not None and (
            end_ns < time_ns or (inclusive and end_ns == time_ns)
        ):
            if self._activity.kind == "step":
                self._repeat(time_ns)
                self._end_step()
            elif self._activity.kind == "checkpoint":
                self._emit(self._activity.start_ns, end_ns, "checkpoint")
                self._save()
                self._go_on(end_ns)
            else:
                self.close(end_ns)
                self._slowed = False
                self._go_on(end_ns)
        self._now_ns = time_ns

    def join(self, nodes: frozenset[str]) -> None:
        """Nodes get ready now."""
        self._ready |= nodes
        if self._activity.kind == "waiting":
            self.close(self._now_ns)
            self._pause(self._now_ns)
        elif self._activity.kind == "pause":
            begun = self._activity
            self._current = self._reconfigure(self._former, self._ready) or self._current
            assert self._current is not None
            assert begun.end_ns is not None
            least_ns = begun.start_ns + self._current.pause_ns
            self._activity = replace(begun, end_ns=max(begun.end_ns, least_ns))
        else:
            assert self._current is not None
            larger = self._reconfigure(self._current, self._ready)
            self._regroup = larger is not None and larger.step_ns < self._current.step_ns

    def fail(self, nodes: frozenset[str]) -> None:
        """Ready nodes fail now, all at once."""
        self._ready -= nodes
        self._former, self._current = (
            None if one is None else replace(one, lost=one.lost | nodes)
            for one in (self._former, self._current)
        )
        used = self._needed() & nodes
        if not used:
            return
        helps = self._recovery.in_flight == "slowed"
        alone = not self._holders(self._current)
        if helps and self._activity.kind == "step" and not (self._slowed or alone or len(used) > 1):
            self._slow_down()
            return
        fatal = helps and (self._slowed or len(used) > 1)
        self._interrupt()
        if self._recovery.checkpoints is not None:
            self._roll_back()
        self._pause(self._now_ns, self._recovery.fatal_pause_ns if fatal else None)

    def _needed(self) -> frozenset[str]:
        """Nodes in use; during a pause also those of pipelines from which layers are copied."""
        if self._current is None:
            return frozenset()
        used = self._current.nodes
        former = self._former if self._activity.kind == "pause" else None
        return used | former.nodes if former is not None and former.pipelines else used

    @staticmethod
    def _holders(trained: Configuration | None) -> frozenset[str]:
        """Nodes that have not failed since they began to train."""
        return frozenset() if trained is None else trained.nodes - trained.lost

    def close(self, time_ns: int, inclusive: bool = False) -> None:
        """Covers the time up to `time_ns` by what the current activity has come to.

        inclusive: training in the background may end at `time_ns`.
        """
        begun = self._activity
        if begun.kind == "pause":
            self._emit(self._end_background(time_ns, inclusive), time_ns, "reconfiguration")
        elif begun.kind == "step":
            self._emit(begun.start_ns, time_ns, "unfinished")
        else:
            self._emit(begun.start_ns, time_ns, begun.kind)

    def _interrupt(self) -> None:
        """Covers the time up to a failure; a step goes on in the background, or is lost."""
        if self._activity.kind != "step":
            self.close(self._now_ns)
        elif self._recovery.in_flight == "background":
            self._background = self._activity  # covered when the pause ends
        else:
            self._emit(self._activity.start_ns, self._now_ns, "lost")

    def _slow_down(self) -> None:
        end_ns = self._activity.end_ns
        assert end_ns is not None
        rest_ns = self._recovery.slowed_ns(end_ns - self._now_ns)
        self._activity = replace(self._activity, end_ns=self._now_ns + rest_ns)
        self._slowed = True

    def _end_background(self, time_ns: int, inclusive: bool) -> int:
        """Ends overtaken training at `time_ns`; returns the time up to which it is covered."""
        begun, self._background = self._background, None
        pause_ns = self._activity.start_ns
        if begun is None:
            return pause_ns
        assert begun.end_ns is not None
        step_ns = begun.end_ns - begun.start_ns
        if steps := (time_ns + inclusive - 1 - begun.start_ns) // step_ns:
            last_ns = begun.start_ns + steps * step_ns
            self._append(Span(begun.start_ns, last_ns, "training", begun.nodes, steps))
            self._unsaved_steps += steps
            return last_ns
        self._append(Span(begun.start_ns, pause_ns, "lost", begun.nodes))
        return pause_ns

    def _repeat(self, time_ns: int) -> None:
        """Ends all steps at once that are over before `time_ns`, but the last, if all are alike."""
        begun = self._activity
        assert self._current is not None
        step_ns = self._current.step_ns
        steps = (time_ns - 1 - begun.start_ns) // step_ns - 1
        if checkpoints := self._recovery.checkpoints:
            steps = min(steps, checkpoints.every_steps - self._unsaved_steps - 1)
        if steps > 0 and not self._slowed and not self._regroup:
            start_ns = begun.start_ns + steps * step_ns
            self._append(Span(begun.start_ns, start_ns, "training", begun.nodes, steps))
            self._unsaved_steps += steps
            self._begin("step", start_ns, step_ns)

    def _end_step(self) -> None:
        assert self._current is not None
        begun = self._activity
        end_ns = begun.end_ns
        assert end_ns is not None
        nominal_ns = begun.start_ns + self._current.step_ns
        self._append(Span(begun.start_ns, nominal_ns, "training", begun.nodes, 1))
        self._append(Span(nominal_ns, end_ns, "redundant", begun.nodes))
        self._unsaved_steps += 1
        checkpoints = self._recovery.checkpoints
        if checkpoints and (self._regroup or self._unsaved_steps >= checkpoints.every_steps):
            self._begin("checkpoint", end_ns, checkpoints.time_ns)
        else:
            self._go_on(end_ns)

    def _go_on(self, time_ns: int) -> None:
        """The next step, or a pause where the nodes are to be used otherwise."""
        if self._regroup or (self._slowed and self._activity.kind == "step"):
            self._pause(time_ns)
        else:
            assert self._current is not None
            self._begin("step", time_ns, self._current.step_ns)

    def _pause(self, start_ns: int, pause_ns: int | None = None) -> None:
        """Begins a reconfiguration for the nodes that are ready, or waits for more of them."""
        if self._activity.kind != "pause" and self._current is not None:
            self._former = self._current
        if self._former is not None and not self._holders(self._former):
            self._give_up_background(start_ns)
            self._roll_back()
        self._current = self._reconfigure(self._former, self._ready)
        self._regroup = False
        if self._current is None:
            self._give_up_background(start_ns)
            self._begin("waiting", start_ns, None)
        else:
            if self._current.loses_state:
                self._give_up_background(start_ns)
                self._roll_back()
            usual_ns = self._current.pause_ns
            self._begin("pause", start_ns, usual_ns if pause_ns is None else pause_ns)

    def _give_up_background(self, time_ns: int) -> None:
        if self._background is not None:
            self._emit(self._background.start_ns, time_ns, "lost")
            self._background = None

    def _roll_back(self) -> None:
        for i in range(self._unsaved, len(self.spans)):
            if self.spans[i].cause == "training":
                self.spans[i] = replace(self.spans[i], cause="lost", steps=0)
        self._save()

    def _save(self) -> None:
        self._unsaved, self._unsaved_steps = len(self.spans), 0

    def _begin(
        self,
        kind: Literal["step", "checkpoint", "pause", "waiting"],
        start_ns: int,
        length_ns: int | None,
    ) -> None:
        end_ns = None if length_ns is None else start_ns + length_ns
        self._activity = _Activity(kind, start_ns, end_ns, len(self._ready))

    def _emit(self, start_ns: int, end_ns: int, cause: Cause) -> None:
        self._append(Span(start_ns, end_ns, cause, self._activity.nodes))

    def _append(self, span: Span) -> None:
        if span.end_ns > span.start_ns:
            self.spans.append(span)
        if len(self.spans) > MOST_SPANS:
            raise PlannerError(
                f"the run is too long to be replayed: more than {MOST_SPANS:,} spans; shorten it"
            )
