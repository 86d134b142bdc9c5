"""What has become of the time of a run so far."""

from dataclasses import replace

from formulations.errors import PlannerError
from solver.replay.spans import Cause, Span

MOST_SPANS = 1_000_000


class History:
    """Spans without gaps; the steps in those since the last whole checkpoint may still be lost."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.unsaved_steps = 0
        self._saved = 0  # spans up to the last whole checkpoint

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
        self._saved, self.unsaved_steps = len(self.spans), 0

    def roll_back(self) -> None:
        """All steps since the last whole checkpoint are lost."""
        for i in range(self._saved, len(self.spans)):
            if self.spans[i].cause == "training":
                self.spans[i] = replace(self.spans[i], cause="lost", steps=0)
        self.save()
