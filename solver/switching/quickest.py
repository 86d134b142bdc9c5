"""The quickest switch plan that is found: balancing, or the published rule.

By balancing every demand goes in a few pieces, each where it is least in the way; then the pieces
on the busiest lines are placed anew.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from formulations.switching.switch import (
    Demand,
    PortBound,
    Sending,
    Switch,
    port_bound,
    published_plan,
)
from solver.interrupt import TimeUp, time_up_after

#: Pieces of a demand; two halves leave single classes of large stages unbalanced.
PIECES = 4
#: Of all demands; where there are more of these, each goes whole: it is a small part of the load.
MOST_PIECES = 200_000
#: Times that the pieces on the busiest ports and links are placed anew, at most.
PASSES = 4


@dataclass(frozen=True)
class SwitchPlan:
    """Sendings and their time.

    bound: no plan is quicker. published_ns: what the plan of the published rule takes. interrupted:
    by Ctrl-C, so that there may be a quicker one.
    """

    sendings: tuple[Sending, ...]
    time_ns: int
    bound: PortBound
    published_ns: int
    interrupted: bool = False


def plan_switch(switch: Switch, time_limit_s: float | None = None) -> SwitchPlan:
    """The better of balancing and the published rule.

    Ctrl-C, and a time limit for balancing, leave the published rule's plan.
    """
    bound = port_bound(switch)
    if not switch.demands:
        return SwitchPlan((), 0, bound, 0)
    published = published_plan(switch)
    published_ns = switch.time_ns(published)
    sendings, time_ns, interrupted = joined(published), published_ns, False
    try:
        with suppress(TimeUp), time_up_after(time_limit_s):
            balanced = balanced_plan(switch, bound.time_ns - switch.latency_ns)
            balanced_ns = switch.time_ns(balanced)
            if balanced_ns <= published_ns:
                sendings, time_ns = balanced, balanced_ns
    except KeyboardInterrupt:
        interrupted = True
    return SwitchPlan(tuple(sendings), time_ns, bound, published_ns, interrupted)


@dataclass(slots=True)
class _Piece:
    """Part of a demand, and how it goes: from which owner, by which GPU to the others."""

    demand: Demand
    begin: int
    end: int
    source: int | None = None
    via: int | None = None

    def sending(self) -> Sending:
        """The piece as it goes."""
        assert self.source is not None  # every piece is placed
        receivers = self.demand.receivers
        return Sending(self.demand.number, self.begin, self.end, self.source, self.via, receivers)


class _Balance:
    """Times of all ports and links under the pieces placed so far, ns."""

    def __init__(self, switch: Switch, fixed: Sequence[Sending]) -> None:
        self.switch, self.rates = switch, [float(rate) for rate in switch.network.ns_per_byte]
        loads = zip(switch.loads(fixed), self.rates, strict=True)
        self.times = [size * rate for size, rate in loads]
        self._port = switch.network.receives

    def move(self, piece: _Piece, sign: int) -> None:
        """Adds a piece that is placed, or takes it away."""
        size, times, rates = sign * (piece.end - piece.begin), self.times, self.rates
        assert piece.source is not None  # every piece is placed
        receivers, via = piece.demand.receivers, piece.via
        copies = len(receivers) if via is None else 1
        for line in self._links(piece.demand, piece.source):
            times[line] += copies * size * rates[line]
        for gpu in receivers:
            times[self._port(gpu)] += size * rates[gpu]
        if via is not None:
            times[via] += (len(receivers) - 1) * size * rates[via]

    def place(self, piece: _Piece) -> None:
        """Gives a piece to the owner, and to the GPU that forwards it, with least to do then."""
        demand, size = piece.demand, piece.end - piece.begin
        copies, times = len(demand.receivers), self.times
        piece.source, piece.via = self._least(demand, size), None
        if copies > 1:
            via = min(demand.receivers, key=times.__getitem__)
            if not demand.near or self._is_sooner(demand, piece.source, via, size):
                piece.via = via
        self.move(piece, 1)

    def _is_sooner(self, demand: Demand, source: int, via: int, size: int) -> bool:
        """Whether forwarding keeps the busiest line of a piece less busy than sending to each."""
        copies = len(demand.receivers)
        forwarded = self.times[via] + (copies - 1) * size * self.rates[via]
        direct = self._after(demand, source, copies * size)
        return max(self._after(demand, source, size), forwarded) < direct

    def _least(self, demand: Demand, size: int) -> int:
        """The owner after whose sending its busiest line has least to do."""
        owners = demand.senders
        if len(owners) == 1:
            return owners[0]
        return min((self._after(demand, gpu, size), self.times[gpu], gpu) for gpu in owners)[2]

    def _after(self, demand: Demand, owner: int, size: int) -> float:
        lines = self._links(demand, owner)
        return max(self.times[line] + size * self.rates[line] for line in lines)

    def _links(self, demand: Demand, owner: int) -> tuple[int, ...]:
        """The port through which an owner sends, and links to the node."""
        network = self.switch.network
        return owner, *network.between(network.node_of[owner], demand.node)

    def is_busiest(self, piece: _Piece, limit: float) -> bool:
        """Whether a piece uses a line with more to do than the limit."""
        assert piece.source is not None
        lines = *self._links(piece.demand, piece.source), *map(self._port, piece.demand.receivers)
        via = () if piece.via is None else (piece.via,)
        return any(self.times[line] > limit for line in (*lines, *via))


def balanced_plan(switch: Switch, enough_ns: float = 0.0) -> list[Sending]:
    """A plan in which each byte comes from one owner; least free demands first, largest first.

    enough_ns: no plan is quicker, start-up left aside.
    """
    fixed = [demand.direct() for demand in switch.demands if not demand.is_free]
    free = sorted(
        (demand for demand in switch.demands if demand.is_free),
        key=lambda demand: (len(demand.senders), -demand.size_bytes * len(demand.receivers)),
    )
    balance, pieces = _Balance(switch, fixed), list[_Piece]()
    parts = min(PIECES, max(1, MOST_PIECES // max(len(free), 1)))
    for demand in free:
        width = switch.classes[demand.number].element_bytes
        elements = demand.size_bytes // width
        edges = [width * (elements * n // parts) for n in range(parts + 1)]
        for begin, end in pairwise(edges):
            if begin < end:
                pieces.append(_Piece(demand, begin, end))
                balance.place(pieces[-1])
    longest = max(balance.times, default=0.0)
    for _ in range(PASSES):
        if longest <= enough_ns:
            break
        for piece in pieces:
            if balance.is_busiest(piece, longest * (1 - 1e-9)):
                balance.move(piece, -1)
                balance.place(piece)
        before, longest = longest, max(balance.times, default=0.0)
        if longest >= before * (1 - 1e-6):
            break
    return joined([*fixed, *(piece.sending() for piece in pieces)])


def joined(sendings: Iterable[Sending]) -> list[Sending]:
    """The same sendings, neighbours that go the same way as one."""
    ways: list[Sending] = []
    for way in sorted(sendings, key=lambda way: (way.number, way.receivers, way.begin)):
        if ways and ways[-1] == way._replace(begin=ways[-1].begin, end=way.begin):
            ways[-1] = way._replace(begin=ways[-1].begin)
        else:
            ways.append(way)
    return ways
