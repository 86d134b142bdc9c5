"""A switch plan by balancing: every demand in a few pieces, each where it is least in the way."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from formulations.switching.switch import Demand, Sending, Switch

#: Pieces of a demand; two halves leave single classes of large stages unbalanced.
PIECES = 4
#: Times that the pieces on the busiest ports and links are placed anew, at most.
PASSES = 4


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

    def move(self, piece: _Piece, sign: int) -> None:
        """Adds a piece that is placed, or takes it away."""
        size = sign * (piece.end - piece.begin)
        for hop in piece.sending().hops():
            for line in self.switch.path(*hop):
                self.times[line] += size * self.rates[line]

    def place(self, piece: _Piece) -> None:
        """Gives a piece to the owner, and to the GPU that forwards it, with least to do then."""
        demand, size = piece.demand, piece.end - piece.begin
        copies = len(demand.receivers)
        source, after = self._least(demand, demand.senders, size)
        piece.source, piece.via = source, None
        if copies > 1:
            via = min(demand.receivers, key=lambda gpu: self.times[gpu])
            forwarded = self.times[via] + (copies - 1) * size * self.rates[via]
            direct = self._after(demand, source, copies * size)
            if not demand.near or max(after, forwarded) < direct:
                piece.via = via
        self.move(piece, 1)

    def _least(self, demand: Demand, owners: Iterable[int], size: int) -> tuple[int, float]:
        """The owner after whose sending its busiest line has least to do, and that time."""
        times = ((self._after(demand, owner, size), self.times[owner], owner) for owner in owners)
        after, _, owner = min(times)
        return owner, after

    def _after(self, demand: Demand, owner: int, size: int) -> float:
        lines = self.switch.path(owner, demand.receivers[0])
        kept = (line for line in lines if line != self.switch.network.receives(demand.receivers[0]))
        return max(self.times[line] + size * self.rates[line] for line in kept)

    def is_busiest(self, piece: _Piece, limit: float) -> bool:
        """Whether a piece uses a line with more to do than the limit."""
        lines = (line for hop in piece.sending().hops() for line in self.switch.path(*hop))
        return any(self.times[line] > limit for line in lines)


def balanced_plan(switch: Switch) -> list[Sending]:
    """A plan in which each byte comes from one owner; least free demands first, largest first."""
    fixed = [one.direct() for one in switch.demands if not one.is_free]
    balance, pieces = _Balance(switch, fixed), list[_Piece]()
    for demand in sorted((one for one in switch.demands if one.is_free), key=_order):
        width = switch.classes[demand.number].element_bytes
        elements = demand.size_bytes // width
        edges = [width * (elements * n // PIECES) for n in range(PIECES + 1)]
        for begin, end in pairwise(edges):
            if begin < end:
                pieces.append(_Piece(demand, begin, end))
                balance.place(pieces[-1])
    longest = max(balance.times, default=0.0)
    for _ in range(PASSES):
        for piece in pieces:
            if balance.is_busiest(piece, longest * (1 - 1e-9)):
                balance.move(piece, -1)
                balance.place(piece)
        before, longest = longest, max(balance.times, default=0.0)
        if longest >= before * (1 - 1e-6):
            break
    return joined([*fixed, *(piece.sending() for piece in pieces)])


def _order(one: Demand) -> tuple[int, int]:
    return len(one.senders), -one.size_bytes * len(one.receivers)


def joined(sendings: Iterable[Sending]) -> list[Sending]:
    """The same sendings, neighbours that go the same way as one."""
    found: list[Sending] = []
    for one in sorted(sendings, key=lambda one: (one.number, one.receivers, one.begin)):
        last = found[-1] if found else None
        if last and last.end == one.begin and _way(last) == _way(one):
            found[-1] = Sending(one.number, last.begin, one.end, *_way(one)[1:])
        else:
            found.append(one)
    return found


def _way(one: Sending) -> tuple[int, int, int | None, tuple[int, ...]]:
    return one.number, one.source, one.via, one.receivers
