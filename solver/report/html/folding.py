"""The bars of a step for a picture that cannot show all of them: the steady state is left out.

A pipeline that has filled repeats itself with every micro-batch, so nothing is lost but length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solver.report.rows import Row
from solver.simulate import Operation

#: Of the time that is shown, what stands for the time that is not.
_WIDTH = 0.04


@dataclass(frozen=True)
class Fold:
    """What lies between two times of the step is not shown but as a gap of some width, ns."""

    start_ns: int
    end_ns: int
    width_ns: int

    @property
    def skipped_ns(self) -> int:
        """By how much everything behind the fold moves to the left."""
        return self.end_ns - self.start_ns - self.width_ns

    def parts(self, start_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
        """What is shown of an interval of the step, in times of the picture."""
        if start_ns < self.start_ns:
            yield start_ns, min(end_ns, self.start_ns)
        if end_ns > self.end_ns:
            yield max(start_ns, self.end_ns) - self.skipped_ns, end_ns - self.skipped_ns

    def hides(self, bar: Operation) -> bool:
        """Whether nothing of an operation is shown."""
        return self.start_ns <= bar.start_ns and bar.end_ns <= self.end_ns


def fold_for(rows: Sequence[Row], step_time_ns: int, most: int) -> Fold:
    """The fold that leaves about so many bars, half of them on each side; an empty one if all."""
    starts = sorted(bar.start_ns for row in rows for bar in row.bars)
    ends = sorted(bar.end_ns for row in rows for bar in row.bars)
    half = most // 2
    if len(starts) <= most or starts[half] >= ends[-half]:
        return Fold(step_time_ns, step_time_ns, 0)
    start, end = starts[half], ends[-half]
    return Fold(start, end, int(_WIDTH * (step_time_ns - (end - start))))


def hidden_micro_batches(row: Row, fold: Fold) -> int:
    """Micro-batches of a row of which no pass is shown."""
    shown = {bar.micro_batch for bar in row.bars if not fold.hides(bar)}
    return len({bar.micro_batch for bar in row.bars} - shown)
