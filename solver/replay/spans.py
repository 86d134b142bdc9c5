"""What a replay comes to: stretches of the run with one cause each, and their sums.

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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, get_args

from formulations.errors import PlannerError

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
