"""A step of sequences of many lengths, and the strategies that may share it (HotSPa, SOSP 2024).

The file of a step stores these values as they are: limits of fields are those of what is read.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from formulations.instance.lengths import Rows
from formulations.instance.record import Batch, Count, Name, refusal

#: ascending: shorter sequences first, and a strategy may come again; free: each strategy has one
#: group, of any lengths, at any place of the step, or the step is an ascending one.
Order = Literal["ascending", "free"]
#: What a switch moves.
Moves = Literal["parameters", "gradients", "both"]

Nanoseconds = Annotated[int, Field(ge=0, lt=1 << 47)]
PerToken = Annotated[float, Field(ge=0, le=1e15)]
#: Times of switches, [from][to]; None: there is none.
Table = tuple[tuple[Nanoseconds | None, ...], ...]
MOST_ATOMS: Final = 4096
MOST_STRATEGIES: Final = 1024
#: Times of all intervals of atoms by all strategies, which are worked out together.
MOST_TIMES: Final = 1 << 26
#: As values of a file are read.
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True, order=True)
class Atom:
    """One class of the length histogram: `count` sequences a step, each of `tokens` at most."""

    __pydantic_config__ = STRICT

    tokens: Batch
    count: Batch


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
    rows_ns
        In place of these three: tokens and ns of padded rows, ascending, of all atoms that the
        replica has room for.
    """

    __pydantic_config__ = STRICT

    per_square_ns: PerToken = 0.0
    per_token_ns: PerToken = 0.0
    per_row_ns: Nanoseconds = 0
    rows_ns: tuple[tuple[Batch, Nanoseconds], ...] = ()

    def sequence_ns(self, tokens: int) -> int:
        """Time that a sequence of `tokens` adds to its row, ns, rounded up.

        Of padded rows that of the row it is padded to, or of the longest.
        """
        if self.rows_ns:
            row = bisect_left(self.rows_ns, (tokens, 0))
            return self.rows_ns[min(row, len(self.rows_ns) - 1)][1]
        return math.ceil(tokens * (self.per_square_ns * tokens + self.per_token_ns))


@dataclass(frozen=True, slots=True)
class Replica:
    """One pipeline of a strategy: its stages, the longest row that fits (tokens), its times.

    count: so many pipelines side by side are alike.
    """

    __pydantic_config__ = STRICT

    stages: Count
    longest_row: Batch
    time: RowTime
    count: Count = 1


@dataclass(frozen=True, slots=True)
class Strategy:
    """A layout of the whole model, say `dp 4, tp 2, pp 4`; on mixed GPUs its replicas differ.

    Attributes
    ----------
    atoms_ns
        In place of replicas: measured times for each atom alone, which add up; None: not known.
    visit_ns
        Each time that a step has run sequences with it: gradients become one over its replicas.
    anchor_ns
        Once a step, if it holds the fp32 state: optimizer, and gather of what that is split by.
    """

    __pydantic_config__ = STRICT

    name: Name
    replicas: tuple[Replica, ...] = ()
    visit_ns: Nanoseconds = 0
    anchor_ns: Nanoseconds = 0
    atoms_ns: tuple[Nanoseconds | None, ...] = ()

    def __post_init__(self) -> None:
        """Refuses a strategy with both kinds of times, or with none."""
        if bool(self.replicas) == bool(self.atoms_ns):
            raise refusal("replicas and atoms_ns", "one of them")

    @property
    def pipelines(self) -> list[Replica]:
        """Its replicas one by one."""
        return [replica for replica in self.replicas for _ in range(replica.count)]

    @property
    def kinds(self) -> dict[Replica, int]:
        """Its unlike replicas, and how many there are of each."""
        alike = Counter[Replica]()
        for replica in self.replicas:
            alike[replace(replica, count=1)] += replica.count
        return alike

    @property
    def dp(self) -> int:
        """How many replicas it has; 0 if its times were measured by atom."""
        return sum(replica.count for replica in self.replicas)

    @property
    def longest(self) -> int:
        """Longest sequence that every replica takes, tokens."""
        return min(replica.longest_row for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class Switching:
    """Time to bring what strategy `[from]` holds to strategy `[to]`, ns, [strategy][strategy].

    None: no such switch. parameters_return: whether the last switch of a step, back to where the
    fp32 state is, moves parameters too and not gradients alone.
    """

    __pydantic_config__ = STRICT

    parameters_ns: Table
    gradients_ns: Table
    parameters_return: bool = False


@dataclass(frozen=True, slots=True)
class Mixed:
    """What is decided upon: atoms by ascending length, strategies, switches, how rows fill.

    padded: every sequence is a row, as long as the upper end of its atom.
    """

    __pydantic_config__ = STRICT

    atoms: Annotated[tuple[Atom, ...], Field(min_length=1, max_length=MOST_ATOMS)]
    strategies: Annotated[tuple[Strategy, ...], Field(min_length=1, max_length=MOST_STRATEGIES)]
    switching: Switching
    rows: Rows = "packed"

    def __post_init__(self) -> None:
        """Refuses what does not fit together, and what would take too much memory."""
        tokens, count = [atom.tokens for atom in self.atoms], len(self.strategies)
        if any(a >= b for a, b in pairwise(tokens)):
            raise refusal("atoms in another order", "by ascending tokens")
        if any(len(strategy.atoms_ns) not in (0, len(tokens)) for strategy in self.strategies):
            raise refusal("atoms_ns of another length", f"{len(tokens)}, one for each atom")
        for replica in (replica for q in self.strategies for replica in q.replicas):
            time = replica.time
            fitting = tokens[: max(1, bisect_right(tokens, replica.longest_row))]
            lengths = [length for length, _ in time.rows_ns]
            if lengths and (self.rows != "padded" or lengths != fitting):
                allowed = f"{len(fitting)}, of padded rows of all atoms up to longest_row"
                raise refusal(f"{len(lengths)} rows_ns, {self.rows}", allowed)
            if lengths and (time.per_square_ns or time.per_token_ns or time.per_row_ns):
                raise refusal("rows_ns and per_square_ns, per_token_ns, per_row_ns", "one of them")
        if len(tokens) ** 2 * count > MOST_TIMES:
            problem = f"{len(tokens):,} atoms and {count:,} strategies"
            raise refusal(problem, f"atoms squared times strategies of at most {MOST_TIMES:,}")
        for table in (self.switching.parameters_ns, self.switching.gradients_ns):
            if [len(row) for row in table] != [count] * count:
                raise refusal("a table of switches of another size", f"{count} times {count}")
