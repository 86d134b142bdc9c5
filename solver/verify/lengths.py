"""How long the paths of `families` are for the ways to run one stage."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.verify.families import Member

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: More than any time in ns or number of micro-batches; sums of a few stay within 64 bits.
NEVER = 1 << 59


@dataclass(frozen=True)
class Costs:
    """The choices of one stage for one lane, ns [M].

    onward, behind: least transfers that lengthen its forwards and backwards, if sends are blocking.
    """

    forward: Array
    backward: Array
    weight: Array
    send: Array
    onward: Array
    behind: Array
    tail: Array

    @property
    def through(self) -> Array:
        """Once there and back, with the transfers from the stage before."""
        return self.forward + self.backward + 2 * self.send


@dataclass(frozen=True)
class StageLengths:
    """Choices of one stage with their surroundings, ns [M]; see the head of this file.

    back, there: ways through the stages before, there and back, or only there. after: a way through
    the stages after, there and back.
    """

    own: Costs
    back: Array
    there: Array
    after: Array
    is_first: bool
    is_last: bool
    limit: int

    @property
    def alone(self) -> Array:
        """[M] what fits on the device alone; 0 if nothing does."""
        own = self.own
        work = own.forward + own.backward + own.weight
        return np.asarray(np.maximum(self.limit // np.maximum(work, 1), 0))

    def within(self, members: Sequence[Member]) -> Mask:
        """[M] whether no member is longer than the limit."""
        fits = np.ones(len(self.back), dtype=np.bool_)
        for member in members:
            fits &= self._length(member) <= self.limit
        return fits

    def added(self, latency: Array, members: Sequence[Member]) -> Array:
        """[M] what members that come back from all stages after their own add at least to latency.

        latency: [M] of this stage alone.
        """
        alone = self.back + latency + self.after
        through = [one for one in members if one.back and (one.beyond or self.is_last)]
        longest: Array = np.max([alone, *map(self._length, through)], axis=0)
        return longest - alone

    def _length(self, member: Member) -> Array:
        own, (forward, backward, weight) = self.own, member.own
        length = forward * own.forward + backward * own.backward + weight * own.weight
        beyond = np.where(self.after < NEVER, member.beyond * self.after, NEVER)
        length = length + (forward - member.beyond) * own.onward
        length = length + (backward - int(member.back)) * own.behind
        if not member.back:
            return np.asarray(length + self.there + own.send + own.tail)
        tail = own.tail if self.is_first else 0
        return np.asarray(length + self.back + 2 * own.send + beyond + tail)
