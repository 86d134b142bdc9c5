"""What goes on at a moment of a run, and the step that goes on behind it."""

from dataclasses import dataclass
from typing import Literal

from solver.replay.formation import Formation
from solver.replay.history import History
from solver.replay.spans import Cause

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
