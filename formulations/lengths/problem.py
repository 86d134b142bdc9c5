"""A step of sequences of many lengths, and the strategies that may share it (HotSPa, SOSP 2024)."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal

Rows = Literal["packed", "padded"]
#: ascending: shorter sequences first, and a strategy may come again; free: each strategy has one
#: group, of any lengths, at any place of the step, or the step is an ascending one.
Order = Literal["ascending", "free"]
#: What a switch moves.
Moves = Literal["parameters", "gradients", "both"]


@dataclass(frozen=True, slots=True, order=True)
class Atom:
    """One class of the length histogram: `count` sequences a step, each of `tokens` at most."""

    tokens: int
    count: int


@dataclass(frozen=True, slots=True)
class RowTime:
    """Time of a row on a replica's slowest stage: over its sequences a l^2 + b l, and c.

    Attributes
    ----------
    per_square_ns
        a, ns per token squared (attention).
    per_token_ns
        b, ns per token.
    per_row_ns
        c, ns per row, whatever it holds.
    """

    per_square_ns: float
    per_token_ns: float
    per_row_ns: int

    def sequence_ns(self, tokens: int) -> int:
        """Time that a sequence of `tokens` adds to its row, ns, rounded up."""
        return math.ceil(tokens * (self.per_square_ns * tokens + self.per_token_ns))


@dataclass(frozen=True, slots=True)
class PaddedTime:
    """Times of padded rows on a replica's slowest stage, each of them known: tokens and ns.

    Ascending; of all atoms that its rows have room for.
    """

    rows_ns: tuple[tuple[int, int], ...]

    @property
    def per_row_ns(self) -> int:
        """Beside its sequence a row takes nothing."""
        return 0

    def sequence_ns(self, tokens: int) -> int:
        """Time of the row that a sequence of `tokens` is padded to, or of the longest, ns."""
        row = bisect_left(self.rows_ns, (tokens, 0))
        return self.rows_ns[min(row, len(self.rows_ns) - 1)][1]


@dataclass(frozen=True, slots=True)
class Replica:
    """One pipeline of a strategy: its stages, the longest row that fits (tokens), its times."""

    stages: int
    longest_row: int
    time: RowTime | PaddedTime


@dataclass(frozen=True, slots=True)
class Strategy:
    """A layout of the whole model, say `dp 4, tp 2, pp 4`; on mixed GPUs its replicas differ.

    Attributes
    ----------
    visit_ns
        Each time that a step has run sequences with it: gradients become one over its replicas.
    anchor_ns
        Once a step, if it holds the fp32 state: optimizer, and gather of what that is split by.
    """

    name: str
    replicas: tuple[Replica, ...]
    visit_ns: int = 0
    anchor_ns: int = 0

    @property
    def longest(self) -> int:
        """Longest sequence that every replica takes, tokens."""
        return min(replica.longest_row for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class Measured:
    """A strategy known by its times for each atom alone, ns, which add up; None: not known."""

    name: str
    atoms_ns: tuple[int | None, ...]
    visit_ns: int = 0  #: as of a `Strategy`
    anchor_ns: int = 0


@dataclass(frozen=True, slots=True)
class Switching:
    """Time to bring what strategy `[from]` holds to strategy `[to]`, ns, [strategy][strategy].

    None: no such switch. parameters_return: whether the last switch of a step, back to where the
    fp32 state is, moves parameters too and not gradients alone.
    """

    parameters_ns: tuple[tuple[int | None, ...], ...]
    gradients_ns: tuple[tuple[int | None, ...], ...]
    parameters_return: bool = False


@dataclass(frozen=True, slots=True)
class Mixed:
    """What is decided upon: atoms by ascending length, strategies, switches, how rows fill.

    padded: every sequence is a row, as long as the upper end of its atom.
    """

    atoms: tuple[Atom, ...]
    strategies: tuple[Strategy | Measured, ...]
    switching: Switching
    rows: Rows = "packed"
