"""What a stage adds to the latency of a template, and what all its stages add together.

Stages are counted from the last one: r stages follow stage i, whatever stages come before it. So
one pass over layers and GPU positions from the end bounds templates of all numbers of stages.

Let latency be all forwards, backwards and transfers of one micro-batch there and back, and, in
1F1B with m micro-batches and r_i stages after stage i: w_i = min(r_i, m - 1), t_i its device time
per micro-batch, and slow_i the largest forward or backward of the stages up to i. Then

    end of the last backward of stage 0  >=  latency + steady_i + w_i slow_i          (1)
    steady_i  =  max((m - 1 - w_i) t_i,  steady_{i-1} + t_i + transfers between i - 1 and i),

the second only where r_{i-1} <= m - 2. Proof. B_i(x) is followed by F_i(x + r_i + 1) and that by
B_i(x + 1): a pair, of length t_i. F_i(y) of stage i leads on to F_e(y) of a later stage e, then
B_e(y - r_e), which is B_e(x + 2) for e = i + 1 and y = x + r_i + 1, and back up to stage i: a path
from B_i(x) to B_i(x + 1 + e - i) of length t_i and, for every stage k from i + 1 to e, t_k and the
transfers between k - 1 and k. So steady_e is the length, beyond that of going there and back once,
of a path through m - 1 - w_e steps from B_e(0) to B_e(m - 1 - w_e): m - 2 - r_i pairs at some stage
i <= e, then down to e. Path one: micro-batch 0 down to the last stage and back to stage e; these
steps; up to a stage j <= e; its w_e last backwards; up. Path two: the first w_e forwards at j <= e;
down to F_e(w_e), B_e(0), up to i; the same steps in the other order, which end with F_i(m - 1);
micro-batch m - 1 down and back. slow_e is the better of the two at the best j. With j = i = e this
is latency plus bottleneck of `solver.bounds.latency_bottleneck`.
If m - 1 <= r_e all forwards of stage e may come first: no steps, w_e = m - 1.

Rounds, with q = r_i + 1 <= m - 1 and C = all times of the stages from i on and transfers between
them: latency + a C + (m - 1 - a q) t_i for every a >= 1 with a q <= m - 1, as proved there.

GPipe runs all forwards of a stage before its backwards: latency + (m - 1) t_i, w_i = 0.

With blocking sends a transfer is part of the operation that sends it; t_i and slow_i have it, as
far as the places of the stages decide it, and the least there is otherwise; steady does not add it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from formulations.schedules import SCHEDULES
from solver.bounds.latency_bottleneck import rounds_of
from solver.layered.problem import Array
from solver.templates.places import Places


@dataclass(frozen=True)
class StageTerms:
    """Terms of stages of templates for `micro_batches`; ns."""

    places: Places
    micro_batches: int

    @property
    def steps(self) -> int:
        """Micro-batches after the first."""
        return self.micro_batches - 1

    @property
    def rounds(self) -> bool:
        """Whether forwards wait for backwards, as in 1F1B."""
        return SCHEDULES[self.places.schedule].turns

    def warm(self, after: Array) -> Array:
        """Number w of stages that `after` stages follow."""
        found: Array = np.minimum(after, self.steps) if self.rounds else 0 * after
        return found

    @cached_property
    def _least_send(self) -> Array:
        """[C] the least transfer to a next stage, if sends are part of the work."""
        least: Array = self.places.send.min(axis=(0, 2)) * int(self.places.blocking)
        return least

    def device(
        self, place: Array | int, start: Array, end: Array, back: Array | int, after: Array
    ) -> tuple[Array, Array]:
        """Time per micro-batch on the device, and of its longer operation, at least.

        back: transfer back to the stage before. All are broadcast together.
        """
        ahead = self.places.forward[place, start, end] + self._least_send[place] * (after > 0)
        behind = self.places.backward[place, start, end] + back * int(self.places.blocking)
        return ahead + behind, np.maximum(ahead, behind)

    def alone(self, work: Array, longer: Array, after: Array) -> Array:
        """What a stage adds to the latency if no other stage is slower."""
        warm = self.warm(after)
        found: Array = (self.steps - warm) * work + warm * longer
        return found

    def extended(
        self, after: int, times: tuple[Array, Array, Array], steady: Array, slow: Array
    ) -> tuple[Array, Array, Array]:
        """steady, slow and what is added by (1), of a stage behind one that has these.

        times: t, the longer operation, and what a further visit adds, 0 if there is none.
        """
        work, longer, again = times
        warm = int(self.warm(np.array(after)))
        slow = np.maximum(slow, longer)
        steady = np.maximum((self.steps - warm) * work, (steady + again) * (again > 0))
        return steady, slow, steady + warm * slow

    def visited_again(self, work: Array, transfers: Array, after: int) -> Array:
        """What a further visit from the stage before adds to its `steady`, 0 if there is none."""
        # It needs forwards that the stage before still waits for.
        waits = self.rounds and after + 1 < self.steps
        found: Array = (work + (0 if self.places.blocking else transfers)) * int(waits)
        return found

    def by_rounds(self, work: Array, onward: Array, after: int) -> Array:
        """What the least or the largest number of rounds adds; onward: C, at least."""
        return rounds_of(self.places.schedule, self.steps, after + 1, onward, work)

    def onward_by_rounds(self, work: Array, most: Array, after: int) -> Array | None:
        """The largest C of which rounds add at most `most`; None where there are no rounds."""
        length = after + 1
        if not self.rounds or length > self.steps:
            return None
        number, rest = divmod(self.steps, length)
        few, many = most - (self.steps - length) * work, (most - rest * work) // number
        found: Array = np.minimum(few, many)
        return found
