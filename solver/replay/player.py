"""A failure trace played through a recovery policy: samples trained, and where the time went.

A failure at the very end of a step comes before it; a run that ends there includes it. Where no
node is left that holds some layer, or none at all that trained, all is lost since the last
checkpoint, or since the begin.

Every instant of the run belongs to one cause, so the times by cause add up to the run:

| cause | time |
|---|---|
| training | steps whose result is kept |
| lost | steps, or parts of them, whose result a failure discards |
| redundant | what a step takes longer because a neighbour computes for a lost node |
| reconfiguration | from a failure (or the decision to use a node that joined) to the first step |
| checkpoint | writing checkpoints, also those that a failure cuts short |
| waiting | nodes not ready, or too few to train |
| unfinished | the step in flight when the run ends |
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal, get_args

from formulations.errors import PlannerError
from solver.replay.policy import Configuration, Policy
from solver.replay.trace import Trace

#: In one run.
MOST_SPANS = 1_000_000

Cause = Literal[
    "training", "lost", "redundant", "reconfiguration", "checkpoint", "waiting", "unfinished"
]
CAUSES: tuple[Cause, ...] = get_args(Cause)


@dataclass(frozen=True)
class Span:
    """A stretch of the run with one cause; `steps` of them kept, on `nodes` ready nodes."""

    start_ns: int
    end_ns: int
    cause: Cause
    nodes: int
    steps: int = 0


@dataclass
class History:
    """Spans without gaps; the steps in those since the last whole checkpoint may still be lost."""

    spans: list[Span] = field(default_factory=list)
    unsaved_steps: int = 0
    saved_spans: int = 0  #: up to the last whole checkpoint

    def add(self, start_ns: int, end_ns: int, cause: Cause, nodes: int, steps: int = 0) -> None:
        """A span, unless it is empty. PlannerError if there are more than MOST_SPANS."""
        if end_ns > start_ns:
            self.spans.append(Span(start_ns, end_ns, cause, nodes, steps))
        self.unsaved_steps += steps
        if len(self.spans) > MOST_SPANS:
            raise PlannerError(
                f"the run is too long to be replayed: more than {MOST_SPANS:,} spans; shorten it"
            )

    def save(self) -> None:
        """A checkpoint is whole."""
        self.saved_spans, self.unsaved_steps = len(self.spans), 0

    def roll_back(self) -> None:
        """All steps since the last whole checkpoint are lost."""
        for i in range(self.saved_spans, len(self.spans)):
            if self.spans[i].cause == "training":
                self.spans[i] = replace(self.spans[i], cause="lost", steps=0)
        self.save()


@dataclass(frozen=True)
class Replay:
    """The run as spans without gaps, from time 0 to the end of the trace.

    complete: or only up to some event, as there was no more time to play it.
    """

    spans: tuple[Span, ...]
    samples_per_step: int
    complete: bool = True

    @property
    def length_ns(self) -> int:
        """Length of what was played."""
        return self.spans[-1].end_ns

    @property
    def steps(self) -> int:
        """Steps whose result is kept."""
        return sum(span.steps for span in self.spans)

    @property
    def samples(self) -> int:
        """Samples trained."""
        return self.steps * self.samples_per_step

    @property
    def time_by_cause_ns(self) -> dict[Cause, int]:
        """Time per cause; the sum is the length of the run."""
        times: dict[Cause, int] = dict.fromkeys(CAUSES, 0)
        for span in self.spans:
            times[span.cause] += span.end_ns - span.start_ns
        return times

    @property
    def samples_per_s(self) -> float:
        """Samples over the whole run."""
        return self.samples / self.length_ns * 1e9

    @property
    def samples_per_s_between_steps(self) -> float:
        """Samples from the begin of the first step to the end of the last one that is kept.

        What Oobleck (SOSP 2023) prints in Table 2; 0 where nothing was trained.
        """
        busy = [span for span in self.spans if span.cause in ("training", "lost", "redundant")]
        kept = [span for span in self.spans if span.steps]
        if not kept:
            return 0.0
        return self.samples / (kept[-1].end_ns - busy[0].start_ns) * 1e9


def joined(spans: Iterable[Span]) -> Iterator[Span]:
    """The spans, neighbours of one cause and number of nodes as one."""
    for _, run in groupby(spans, key=lambda span: (span.cause, span.nodes)):
        like = list(run)
        steps = sum(span.steps for span in like)
        yield replace(like[0], end_ns=like[-1].end_ns, steps=steps)


def replay(trace: Trace, policy: Policy, stop: Callable[[], bool] = lambda: False) -> Replay:
    """Plays the trace; nothing is random. PlannerError for a run of more than MOST_SPANS spans.

    A node that joins is used from the next reconfiguration on; if it makes the step shorter, that
    comes at the end of the step in flight (after a checkpoint where the policy writes any). Where
    `stop` says so, the run ends before the next failure or join, and is not complete.
    """
    run, complete, end_ns = _Training(policy), True, trace.end_ns
    # (time, whether a node gets ready or else fails, node). A node that fails before or when it
    # gets ready is never noticed.
    delay_ns = policy.recovery.node_ready_ns
    coming_ns, alarms = dict.fromkeys(trace.nodes, delay_ns), list[tuple[int, bool, str]]()
    for event in trace.events:
        ready_ns = coming_ns.pop(event.node, None)
        if event.kind == "join":
            coming_ns[event.node] = event.time_ns + delay_ns
        elif ready_ns is None or ready_ns < event.time_ns:
            alarms.append((event.time_ns, False, event.node))
            alarms += [] if ready_ns is None else [(ready_ns, True, event.node)]
    alarms += [(time_ns, True, node) for node, time_ns in coming_ns.items()]
    in_run = sorted(alarm for alarm in alarms if alarm[0] < trace.end_ns)
    for (time_ns, is_join), together in groupby(in_run, key=lambda alarm: alarm[:2]):
        if time_ns > 0 and stop():
            complete, end_ns = False, time_ns
            break
        run.advance(time_ns, inclusive=is_join)
        (run.join if is_join else run.fail)(frozenset(node for _, _, node in together))
    run.advance(end_ns, inclusive=True)
    run.close(end_ns, inclusive=True)
    return Replay(tuple(joined(run.history.spans)), policy.samples_per_step, complete)


@dataclass(frozen=True)
class Activity:
    """What is going on; waiting has no end. nodes: ready ones when it began.

    comes_to: what it is if the end of the run, or some event, cuts it short: a step is unfinished.
    """

    comes_to: Cause
    start_ns: int
    end_ns: int | None
    nodes: int

    @property
    def until_ns(self) -> int:
        """End of what has one."""
        assert self.end_ns is not None
        return self.end_ns


class _Training:
    """What goes on at one moment of a trace, and on which nodes; the history is what was before.

    ready: nodes that are. trained: the configuration that trains or did last; next: the one to
    come, there during a pause only.
    """

    def __init__(self, policy: Policy) -> None:
        self.history = History()
        self.ready: frozenset[str] = frozenset()
        self.trained: Configuration | None = None
        self.next: Configuration | None = None
        self._policy, self._recovery = policy, policy.recovery
        self._background: Activity | None = None  # a step that a failure has overtaken
        self._slowed = False
        self._regroup = False  # reconfigure after the step in flight
        self._activity = Activity("waiting", 0, None, 0)
        self._now_ns = 0

    @property
    def _step_ns(self) -> int:
        assert self.trained is not None
        return self.trained.step_ns

    @property
    def _is_held(self) -> bool:
        """Whether a node that has trained still holds what it did, or none ever has."""
        return self.trained is None or bool(self.trained.nodes - self.trained.lost)

    def advance(self, time_ns: int, inclusive: bool) -> None:
        """Ends every activity that is over before `time_ns`, or at it if `inclusive`."""
        while (end_ns := self._activity.end_ns) is not None and end_ns < time_ns + inclusive:
            if self._activity.comes_to == "unfinished":
                self._end_step(time_ns)
                continue
            self.close(end_ns)
            if self._activity.comes_to == "checkpoint":
                self.history.save()
            else:  # a pause
                self.trained, self.next, self._slowed = self.next, None, False
            self._go_on(end_ns)
        self._now_ns = time_ns

    def close(self, time_ns: int, inclusive: bool = False) -> None:
        """Covers the time up to `time_ns` by what the current activity has come to.

        inclusive: training in the background may end at `time_ns`. It has trained whole steps, or
        else is lost until the pause that began.
        """
        since_ns, begun = self._activity.start_ns, self._background
        steps = 0 if begun is None else (time_ns + inclusive - 1 - begun.start_ns) // self._step_ns
        if begun is not None and steps:
            since_ns = begun.start_ns + steps * self._step_ns
            self.history.add(begun.start_ns, since_ns, "training", begun.nodes, steps)
            self._background = None
        self._give_up(since_ns)
        self.history.add(since_ns, time_ns, self._activity.comes_to, self._activity.nodes)

    def join(self, nodes: frozenset[str]) -> None:
        """Nodes get ready now."""
        self.ready |= nodes
        if self._activity.comes_to == "waiting":
            self.close(self._now_ns)
            self._pause(self._now_ns)
            return
        best = self._policy.reconfigure(self.trained, self.ready)
        if self._activity.comes_to != "reconfiguration":
            self._regroup = best is not None and best.step_ns < self._step_ns
        elif best is not None:
            self.next, begun = best, self._activity
            end_ns = max(begun.until_ns, begun.start_ns + best.pause_ns)
            self._activity = replace(begun, end_ns=end_ns)

    def fail(self, nodes: frozenset[str]) -> None:
        """Ready nodes fail now, all at once."""
        self.ready -= nodes
        configs = self.trained, self.next
        self.trained, self.next = (c and replace(c, lost=c.lost | nodes) for c in configs)
        # Nodes in use; during a pause also those of pipelines from which layers are copied
        needed = frozenset() if self.next is None else self.next.nodes
        if self.trained is not None and (self.next is None or self.trained.pipelines):
            needed |= self.trained.nodes
        used = needed & nodes
        if not used or self._activity.comes_to == "waiting":
            return
        helps = self._recovery.in_flight == "slowed"
        fatal = helps and (self._slowed or len(used) > 1)
        if helps and not fatal and self._activity.comes_to == "unfinished" and self._is_held:
            rest_ns = self._recovery.slowed_ns(self._activity.until_ns - self._now_ns)
            self._activity = replace(self._activity, end_ns=self._now_ns + rest_ns)
            self._slowed = True
            return
        # Up to here a step is lost, or goes on in the background; all else comes to something.
        if self._activity.comes_to != "unfinished":
            self.close(self._now_ns)
        elif self._recovery.in_flight == "background":
            self._background = self._activity
        else:
            self._cover(self._now_ns, "lost")
        if self._recovery.checkpoints is not None:
            self.history.roll_back()
        self._pause(self._now_ns, self._recovery.fatal_pause_ns if fatal else None)

    def _end_step(self, time_ns: int) -> None:
        """Ends the step; all at once that are over before `time_ns`, if they are alike."""
        begun, step_ns = self._activity, self._step_ns
        steps = (time_ns - 1 - begun.start_ns) // step_ns - 1
        if checkpoints := self._recovery.checkpoints:
            steps = min(steps, checkpoints.every_steps - self.history.unsaved_steps - 1)
        if steps > 0 and not self._slowed and not self._regroup:
            self._cover(begun.start_ns + steps * step_ns, "training", steps)
            self._begin("unfinished", begun.start_ns + steps * step_ns, step_ns)
        begun, end_ns = self._activity, self._activity.until_ns
        nominal_ns = begun.start_ns + step_ns
        self._cover(nominal_ns, "training", steps=1)
        self.history.add(nominal_ns, end_ns, "redundant", begun.nodes)
        if checkpoints and (self._regroup or self.history.unsaved_steps >= checkpoints.every_steps):
            self._begin("checkpoint", end_ns, checkpoints.time_ns)
        else:
            self._go_on(end_ns)

    def _go_on(self, time_ns: int) -> None:
        """The next step, or a pause where the nodes are to be used otherwise."""
        if self._regroup or (self._slowed and self._activity.comes_to == "unfinished"):
            self._pause(time_ns)
        else:
            self._begin("unfinished", time_ns, self._step_ns)

    def _pause(self, start_ns: int, pause_ns: int | None = None) -> None:
        """Begins a reconfiguration for the nodes that are ready, or waits for more of them."""
        self._regroup = False
        self.next = self._policy.reconfigure(self.trained, self.ready)
        state_is_lost = not self._is_held or (self.next is not None and self.next.loses_state)
        if state_is_lost or self.next is None:
            self._give_up(start_ns)
        if state_is_lost:
            self.history.roll_back()
        if self.next is None:
            self._begin("waiting", start_ns, None)
            return
        length_ns = self.next.pause_ns if pause_ns is None else pause_ns
        self._begin("reconfiguration", start_ns, length_ns)

    def _give_up(self, time_ns: int) -> None:
        """A step in the background is lost, as its nodes are needed at `time_ns`."""
        if self._background is not None:
            begun, self._background = self._background, None
            self.history.add(begun.start_ns, time_ns, "lost", begun.nodes)

    def _begin(self, comes_to: Cause, start_ns: int, length_ns: int | None) -> None:
        end_ns = None if length_ns is None else start_ns + length_ns
        self._activity = Activity(comes_to, start_ns, end_ns, len(self.ready))

    def _cover(self, end_ns: int, cause: Cause, steps: int = 0) -> None:
        self.history.add(self._activity.start_ns, end_ns, cause, self._activity.nodes, steps)
