"""The clusters of a family that may still have plans beyond the front, furthest first."""

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace, nsmallest
from math import inf

from formulations.instance.family import Counts
from solver.clusters.front import Front
from solver.clusters.measure import Measure
from solver.clusters.member import MemberClosing, Members, MemberTask
from solver.result import NOISE


class OpenClusters:
    """What is known of every cluster. bounds: of its step time in ns; None: no plan.

    closed: clusters whose turn is over, and whether bounds alone were not enough. proofs: closings
    of those on the front; no more is kept of others, so that memory does not grow with the search.
    """

    def __init__(self, members: Members, measure: Measure, asked: float) -> None:
        """asked: the gap up to which a cluster counts as closed."""
        self.members, self.asked = members, asked
        self.front = Front(measure, members.counts)
        self.bounds: dict[Counts, int | None] = dict.fromkeys(members.counts, 0)
        self.closed: dict[Counts, bool] = {}
        self.proofs: dict[Counts, MemberClosing] = {}
        self._packed: set[Counts] = set()

    @property
    def left(self) -> list[Counts]:
        """The open ones."""
        return [counts for counts in self.bounds if self.is_open(counts)]

    def bound(self) -> None:
        """Bounds all of them in closed form."""
        for counts in self.bounds:
            self.bounds[counts] = self._within(counts, self.members.bound_ns(counts))

    def target_ns(self, counts: Counts, front: Front | None = None) -> float:
        """A bound of at least this closes the cluster."""
        return (front or self.front).cutoffs[counts] * (1 - self.asked) * (1 - NOISE)

    def is_open(self, counts: Counts, front: Front | None = None) -> bool:
        """Whether the cluster may have a plan that is not dominated, beyond the gap."""
        bound_ns = self.bounds[counts]
        return bound_ns is not None and bound_ns < self.target_ns(counts, front)

    def next_task(self) -> MemberTask | None:
        """The open cluster not yet searched that may go furthest beyond the front."""
        heap = [(self._rank(counts), counts) for counts in self._unsearched()]
        heapify(heap)
        while heap:
            _, counts = heap[0]
            if counts in self._packed:
                return MemberTask(counts, self.front.cutoffs[counts])
            packed_ns = self.members.packed_ns(counts, self.target_ns(counts))
            self.bounds[counts] = self._within(counts, packed_ns)
            self._packed.add(counts)
            if self.is_open(counts):
                heapreplace(heap, (self._rank(counts), counts))
            else:
                heappop(heap)
        return None

    def _within(self, counts: Counts, bound_ns: int | None) -> int | None:
        """A bound of a cluster; None where plans that take so long are beyond limits."""
        refused_ns = (max(self.front.longest[counts]) + 1) * (1 - NOISE)
        return None if bound_ns is None or bound_ns >= refused_ns else bound_ns

    def _unsearched(self) -> list[Counts]:
        """Open clusters not yet searched."""
        return [one for one in self.left if one not in self.closed]

    def _rank(self, counts: Counts, front: Front | None = None) -> tuple[float, ...]:
        """The lower the further the cluster may go; without a front, fast and cheap ones first."""
        bound_ns = self.bounds[counts] or 0
        measure = self.front.measure
        time, cost, *_ = measure.figures(counts, bound_ns, measure.terms(counts)[0])
        return bound_ns / (front or self.front).cutoffs[counts], time * cost

    def take(self, closing: MemberClosing) -> None:
        """Keeps what became known of a cluster."""
        counts, known_ns, bound_ns = closing.counts, self.bounds[closing.counts], closing.bound_ns
        possible = known_ns is not None and bound_ns is not None
        proved_ns = max(known_ns or 0, bound_ns or 0) if possible else None
        self.bounds[counts] = self._within(counts, proved_ns)
        self.closed[counts] = closing.searched
        if closing.found is not None:
            self.front.offer(counts, closing.found[1])
            known = self.proofs | {counts: closing}
            self.proofs = {one.counts: known[one.counts] for one in self.front.best}

    def upcoming(self, most: int, expected: Mapping[Counts, int]) -> Iterator[MemberTask]:
        """Those open clusters whose turn comes next if plans of these step times are found.

        Of so many that may go furthest beyond the front as it is.
        """
        left = set(nsmallest(most, self._unsearched(), key=self._rank))
        front = self.front.among(left)
        while left := {counts for counts in left if self.is_open(counts, front)}:
            counts = min(left, key=lambda one: (self._rank(one, front), one))
            left.remove(counts)
            yield MemberTask(counts, front.cutoffs[counts])
            if expected.get(counts, inf) < front.cutoffs[counts]:
                front.offer(counts, expected[counts])

    @property
    def gap(self) -> float | None:
        """How far plans of open clusters may be beyond the front at most; None: any way."""
        shares = []
        for counts, bound_ns in self.bounds.items():
            cutoff_ns = self.front.cutoffs[counts]
            if bound_ns is not None and bound_ns < cutoff_ns * (1 - NOISE):
                shares.append(bound_ns / cutoff_ns)
        return None if 0 in shares else 1 - min(shares, default=1.0)
