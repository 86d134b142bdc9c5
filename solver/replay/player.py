"""A failure trace played through a recovery policy: samples trained, and where the time went.

A failure at the very end of a step comes before it; a run that ends there includes it. Where no
node is left that holds some layer, or none at all that trained, all is lost since the last
checkpoint, or since the begin.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from solver.replay.policy import Configuration, Policy, Reconfigure
from solver.replay.spans import Cause, History, Replay, joined
from solver.replay.trace import Trace


def replay(trace: Trace, policy: Policy, stop: Callable[[], bool] = lambda: False) -> Replay:
    """Plays the trace; nothing is random. PlannerError for a run of more than MOST_SPANS spans.

    A node that joins is used from the next reconfiguration on; if it makes the step shorter, that
    comes at the end of the step in flight (after a checkpoint where the policy writes any). Where
    `stop` says so, the run ends before the next failure or join, and is not complete.
    """
    run, complete = _Training(policy), True
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
    return Replay(tuple(joined(run.history.spans)), policy.samples_per_step, complete)


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


Kind = Literal["step", "checkpoint", "pause", "waiting"]
#: What an activity is that the end of the run, or some event, cuts short.
COMES_TO: dict[Kind, Cause] = {
    "step": "unfinished",
    "checkpoint": "checkpoint",
    "pause": "reconfiguration",
    "waiting": "waiting",
}


@dataclass(frozen=True)
class Activity:
    """What is going on; waiting has no end. nodes: ready ones when it began."""

    kind: Kind
    start_ns: int
    end_ns: int | None
    nodes: int

    @property
    def until_ns(self) -> int:
        """End of what has one."""
        assert self.end_ns is not None
        return self.end_ns


class Formation:
    """Nodes that are ready, the configuration that trains or did last, and the one to come.

    The next one is there during a pause only.
    """

    def __init__(self, reconfigure: Reconfigure) -> None:
        self.ready: frozenset[str] = frozenset()
        self.trained: Configuration | None = None
        self.next: Configuration | None = None
        self._reconfigure = reconfigure

    @property
    def step_ns(self) -> int:
        """A step of the configuration that trains."""
        assert self.trained is not None
        return self.trained.step_ns

    @property
    def needed(self) -> frozenset[str]:
        """Nodes in use; during a pause also those of pipelines from which layers are copied."""
        used = frozenset() if self.next is None else self.next.nodes
        if self.trained is not None and (self.next is None or self.trained.pipelines):
            used |= self.trained.nodes
        return used

    @property
    def holds(self) -> bool:
        """Whether a node that has trained still holds what it did, or none ever has."""
        return self.trained is None or bool(self.trained.nodes - self.trained.lost)

    def fail(self, nodes: frozenset[str]) -> None:
        """These nodes fail."""
        self.ready -= nodes
        self.trained, self.next = (
            one and replace(one, lost=one.lost | nodes) for one in (self.trained, self.next)
        )

    def best(self) -> Configuration | None:
        """What the nodes that are ready would train as."""
        return self._reconfigure(self.trained, self.ready)

    def begin(self) -> None:
        """The next configuration trains."""
        self.trained, self.next = self.next, None


class Overtaken:
    """A step that a failure has overtaken, if any: it goes on in the background of a pause."""

    def __init__(self, history: History, nodes: Formation) -> None:
        self._history, self._nodes = history, nodes
        self._begun: Activity | None = None

    def begin(self, step: Activity) -> None:
        """A step goes on; it is covered when the pause ends."""
        self._begun = step

    def end(self, time_ns: int, inclusive: bool, pause_ns: int) -> int:
        """Ends it at `time_ns`, or before if not `inclusive`; gives the end of what is covered.

        It has trained whole steps, or else is lost until the pause that began at `pause_ns`.
        """
        begun = self._begun
        if begun is None:
            return pause_ns
        if steps := (time_ns + inclusive - 1 - begun.start_ns) // self._nodes.step_ns:
            end_ns = begun.start_ns + steps * self._nodes.step_ns
            self._history.add(begun.start_ns, end_ns, "training", begun.nodes, steps)
            self._begun = None
            return end_ns
        self.give_up(pause_ns)
        return pause_ns

    def give_up(self, time_ns: int) -> None:
        """It is lost, as its nodes are needed at `time_ns`."""
        if self._begun is not None:
            self._history.add(self._begun.start_ns, time_ns, "lost", self._begun.nodes)
            self._begun = None


class _Training:
    """What goes on at one moment of a trace, and on which nodes; the history is what was before."""

    def __init__(self, policy: Policy) -> None:
        self.history = History()
        self._nodes = Formation(policy.reconfigure)
        self._recovery = policy.recovery
        self._background = Overtaken(self.history, self._nodes)
        self._slowed = False
        self._regroup = False  # reconfigure after the step in flight
        self._activity = Activity("waiting", 0, None, 0)
        self._now_ns = 0

    def advance(self, time_ns: int, inclusive: bool) -> None:
        """Ends every activity that is over before `time_ns`, or at it if `inclusive`."""
        while (end_ns := self._activity.end_ns) is not None and end_ns < time_ns + inclusive:
            if self._activity.kind == "step":
                self._repeat(time_ns)
                self._end_step()
                continue
            self.close(end_ns)
            if self._activity.kind == "checkpoint":
                self.history.save()
            else:
                self._nodes.begin()
                self._slowed = False
            self._go_on(end_ns)
        self._now_ns = time_ns

    def close(self, time_ns: int, inclusive: bool = False) -> None:
        """Covers the time up to `time_ns` by what the current activity has come to.

        inclusive: training in the background may end at `time_ns`.
        """
        since_ns = self._background.end(time_ns, inclusive, self._activity.start_ns)
        cause = COMES_TO[self._activity.kind]
        self.history.add(since_ns, time_ns, cause, self._activity.nodes)

    def join(self, nodes: frozenset[str]) -> None:
        """Nodes get ready now."""
        self._nodes.ready |= nodes
        if self._activity.kind == "waiting":
            self.close(self._now_ns)
            self._pause(self._now_ns)
            return
        found = self._nodes.best()
        if self._activity.kind != "pause":
            self._regroup = found is not None and found.step_ns < self._nodes.step_ns
        elif found is not None:
            self._nodes.next, begun = found, self._activity
            end_ns = max(begun.until_ns, begun.start_ns + found.pause_ns)
            self._activity = replace(begun, end_ns=end_ns)

    def fail(self, nodes: frozenset[str]) -> None:
        """Ready nodes fail now, all at once."""
        self._nodes.fail(nodes)
        used = self._nodes.needed & nodes
        if not used or self._activity.kind == "waiting":
            return
        helps = self._recovery.in_flight == "slowed"
        fatal = helps and (self._slowed or len(used) > 1)
        if helps and not fatal and self._activity.kind == "step" and self._nodes.holds:
            rest_ns = self._recovery.slowed_ns(self._activity.until_ns - self._now_ns)
            self._activity = replace(self._activity, end_ns=self._now_ns + rest_ns)
            self._slowed = True
            return
        self._interrupt()
        if self._recovery.checkpoints is not None:
            self.history.roll_back()
        self._pause(self._now_ns, self._recovery.fatal_pause_ns if fatal else None)

    def _interrupt(self) -> None:
        """Covers the time up to a failure; a step goes on in the background, or is lost."""
        if self._activity.kind != "step":
            self.close(self._now_ns)
        elif self._recovery.in_flight == "background":
            self._background.begin(self._activity)
        else:
            self._cover(self._now_ns, "lost")

    def _repeat(self, time_ns: int) -> None:
        """Ends all steps at once that are over before `time_ns`, but the last, if all are alike."""
        begun, step_ns = self._activity, self._nodes.step_ns
        steps = (time_ns - 1 - begun.start_ns) // step_ns - 1
        if checkpoints := self._recovery.checkpoints:
            steps = min(steps, checkpoints.every_steps - self.history.unsaved_steps - 1)
        if steps > 0 and not self._slowed and not self._regroup:
            self._cover(begun.start_ns + steps * step_ns, "training", steps)
            self._begin("step", begun.start_ns + steps * step_ns, step_ns)

    def _end_step(self) -> None:
        begun, end_ns = self._activity, self._activity.until_ns
        nominal_ns = begun.start_ns + self._nodes.step_ns
        self._cover(nominal_ns, "training", steps=1)
        self.history.add(nominal_ns, end_ns, "redundant", begun.nodes)
        checkpoints = self._recovery.checkpoints
        if checkpoints and (self._regroup or self.history.unsaved_steps >= checkpoints.every_steps):
            self._begin("checkpoint", end_ns, checkpoints.time_ns)
        else:
            self._go_on(end_ns)

    def _go_on(self, time_ns: int) -> None:
        """The next step, or a pause where the nodes are to be used otherwise."""
        if self._regroup or (self._slowed and self._activity.kind == "step"):
            self._pause(time_ns)
        else:
            self._begin("step", time_ns, self._nodes.step_ns)

    def _pause(self, start_ns: int, pause_ns: int | None = None) -> None:
        """Begins a reconfiguration for the nodes that are ready, or waits for more of them."""
        self._regroup = False
        if not self._nodes.holds:
            self._lose_state(start_ns)
        found = self._nodes.next = self._nodes.best()
        if found is None:
            self._background.give_up(start_ns)
            self._begin("waiting", start_ns, None)
            return
        if found.loses_state:
            self._lose_state(start_ns)
        self._begin("pause", start_ns, found.pause_ns if pause_ns is None else pause_ns)

    def _lose_state(self, time_ns: int) -> None:
        self._background.give_up(time_ns)
        self.history.roll_back()

    def _begin(self, kind: Kind, start_ns: int, length_ns: int | None) -> None:
        end_ns = None if length_ns is None else start_ns + length_ns
        self._activity = Activity(kind, start_ns, end_ns, len(self._nodes.ready))

    def _cover(self, end_ns: int, cause: Cause, steps: int = 0) -> None:
        """The current activity so far, as a span."""
        self.history.add(self._activity.start_ns, end_ns, cause, self._activity.nodes, steps)
