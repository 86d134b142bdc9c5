"""The verifier's own times of strategies, switches and steps of mixed lengths, in whole ns.

Nothing is shared with the planner but the words of the file: sums in plain integers, of the
definition in `docs/lengths.md`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, reduce
from itertools import pairwise
from math import ceil, inf
from typing import NamedTuple

from solver.lengths_document import ProblemDocument, ReplicasDocument, StrategyDocument

#: Unlike replicas divide a packed set into so many parts.
PARTS = 1 << 14


class Hop(NamedTuple):
    """A switch of a step; inf: it is not possible."""

    leaves: int
    enters: int
    moves: str
    time_ns: float


class Sums(NamedTuple):
    """Of a set of atoms for one strategy: [kind] work and longest row, ns; sequences.

    content: what fills rows, tokens or padded sequences. undivided: least time of whole sequences;
    where times are measured, the time.
    """

    work: tuple[int, ...]
    row: tuple[int, ...]
    number: int
    content: int
    undivided: int


class MixedTimes:
    """Times of one problem; None: not possible."""

    def __init__(self, problem: ProblemDocument) -> None:
        self.problem = problem
        self.strategies = [_Times(problem, one) for one in problem.strategies]

    def set_ns(self, strategy: int, atoms: Sequence[int]) -> int | None:
        """What a strategy takes for a set of atoms, not empty."""
        return self.strategies[strategy].set_ns(atoms)

    def once_ns(self, anchor: int) -> int:
        """What the anchor takes once a step."""
        return self.problem.strategies[anchor].anchor_ns

    def out_ns(self, anchor: int, first: int) -> float:
        """Parameters from the anchor to what runs first; inf: impossible."""
        return 0 if anchor == first else _time(self.problem.parameters_ns[anchor][first])

    def between_ns(self, left: int, right: int) -> float:
        """Parameters and gradients between two; inf: impossible."""
        moved = (self.problem.parameters_ns, self.problem.gradients_ns)
        return sum(_time(table[left][right]) for table in moved)

    def back_ns(self, last: int, anchor: int) -> float:
        """To the anchor at the end; inf: impossible."""
        if last == anchor:
            return 0
        if self.problem.parameters_return:
            return self.between_ns(last, anchor)
        return _time(self.problem.gradients_ns[last][anchor])

    def hops(self, anchor: int, visited: Sequence[int]) -> list[Hop]:
        """Every switch of a step, in its order."""
        around = [anchor, *visited, anchor]
        pairs = [pair for pair in pairwise(around) if pair[0] != pair[1]]
        found: list[Hop] = []
        for n, (a, b) in enumerate(pairs):
            if n == len(pairs) - 1:
                moves = "both" if self.problem.parameters_return else "gradients"
                found.append(Hop(a, b, moves, self.back_ns(a, b)))
            elif n == 0 and visited[0] != anchor:
                found.append(Hop(a, b, "parameters", self.out_ns(a, b)))
            else:
                found.append(Hop(a, b, "both", self.between_ns(a, b)))
        return found


class _Times:
    """Those of one strategy."""

    def __init__(self, problem: ProblemDocument, strategy: StrategyDocument) -> None:
        self._padded = problem.rows == "padded"
        self._counts = [atom.count for atom in problem.atoms]
        self._tokens = [atom.tokens for atom in problem.atoms]
        self._contents = self._counts
        if not self._padded:
            self._contents = [atom.count * atom.tokens for atom in problem.atoms]
        self._strategy = strategy
        self.kinds = _merged(strategy.replicas)

    @property
    def measured(self) -> bool:
        """Whether times of atoms are given."""
        return bool(self._strategy.atoms_ns)

    @cached_property
    def fits(self) -> list[bool]:
        """[atom]."""
        if self.measured:
            return [ns is not None for ns in self._strategy.atoms_ns]
        longest = min(kind.longest_row for kind in self.kinds)
        return [tokens <= longest for tokens in self._tokens]

    @cached_property
    def each_ns(self) -> list[list[int]]:
        """[kind][atom] time of one sequence in its row, of a padded one with its row."""
        return [
            [self._row_ns(kind, k) - row_ns for k in range(len(self._tokens))]
            for kind, (_, row_ns) in zip(self.kinds, self._rows, strict=True)
        ]

    def _row_ns(self, kind: ReplicasDocument, atom: int) -> int:
        """Time of a row with one sequence; where times are known, 0 for an atom without one."""
        if kind.rows_ns:
            return kind.rows_ns[atom] if atom < len(kind.rows_ns) else 0
        n = self._tokens[atom]
        return ceil(n * (kind.per_square_ns * n + kind.per_token_ns)) + kind.per_row_ns

    @cached_property
    def _rows(self) -> list[tuple[int, int]]:
        """[kind] content of a row, and time of one beside its sequences."""
        if self._padded:
            return [(1, 0)] * len(self.kinds)
        return [(kind.longest_row, kind.per_row_ns) for kind in self.kinds]

    @cached_property
    def rows_ns(self) -> list[list[int]]:
        """[kind][atom] the longest row with sequences of one atom."""
        found = []
        for kind, each, (_, row_ns) in zip(self.kinds, self.each_ns, self._rows, strict=True):
            fit = [1 if self._padded else kind.longest_row // n for n in self._tokens]
            found.append([n * ns + row_ns for n, ns in zip(fit, each, strict=True)])
        return found

    def set_ns(self, atoms: Sequence[int]) -> int | None:
        """Time of a set."""
        times = list(self.growing_ns(sorted(atoms, reverse=True)))
        return times[-1] if len(times) == len(atoms) else None

    def growing_ns(self, atoms: Iterable[int]) -> Iterator[int]:
        """Times of the first, the first two and so on, longest first, up to one that fits not."""
        sums = self.nothing
        for k in atoms:
            if not self.fits[k]:
                return
            sums = self.with_atom(sums, k)
            yield self.sums_ns(sums)

    @property
    def nothing(self) -> Sums:
        """Of no atom."""
        none = (0,) * len(self.kinds)
        return Sums(none, none, 0, 0, 0)

    def with_atom(self, sums: Sums, atom: int) -> Sums:
        """With one more atom that fits, no longer than those before."""
        if self.measured:
            given = self._strategy.atoms_ns[atom] or 0
            return sums._replace(number=sums.number + 1, undivided=sums.undivided + given)
        count, number = self._counts[atom], sums.number + self._counts[atom]
        return Sums(
            tuple(w + count * each[atom] for w, each in zip(sums.work, self.each_ns, strict=True)),
            tuple(max(r, own[atom]) for r, own in zip(sums.row, self.rows_ns, strict=True)),
            number,
            sums.content + self._contents[atom],
            max(sums.undivided, self._undivided_ns(atom, number)),
        )

    def sums_ns(self, sums: Sums) -> int:
        """Time of what has these sums."""
        if not sums.number:
            return 0
        if self.measured:
            return sums.undivided + self._strategy.visit_ns
        return self._shared_ns(sums) + self._strategy.visit_ns

    def _undivided_ns(self, atom: int, number: int) -> int:
        """Sequences are run whole: so many of this length take at least this."""
        each = [own[atom] for own in self.each_ns]
        counts = [kind.count for kind in self.kinds]
        if len(each) == 1:
            return -(-number // counts[0]) * each[0]
        if not min(each):  # such a replica runs any number in no time
            return 0

        def enough(time_ns: int) -> bool:
            done = (n * (time_ns // ns) for n, ns in zip(counts, each, strict=True))
            return sum(done) >= number

        return bisect_left(range(number * max(each)), True, key=enough)

    def _shared_ns(self, sums: Sums) -> int:
        """Time of the rows of a set."""
        if len(self.kinds) == 1:
            [kind], [(room, row_ns)] = self.kinds, self._rows
            rows_ns = -(-sums.content // (kind.count * room)) * row_ns
            share_ns = max(-(-sums.work[0] // kind.count), sums.undivided)
            return share_ns + rows_ns + (kind.stages - 1) * sums.row[0]

        def enough(time_ns: int) -> bool:
            shares = (self._share(i, time_ns, sums) for i in range(len(self.kinds)))
            return sum(n * kind.count for n, kind in zip(shares, self.kinds, strict=True)) >= PARTS

        most = sum(sums.work) + sum(row_ns * sums.content for _, row_ns in self._rows)
        most += sum(kind.stages * ns for kind, ns in zip(self.kinds, sums.row, strict=True))
        return max(sums.undivided, bisect_left(range(most + 1), True, key=enough))

    def _share(self, i: int, time_ns: int, sums: Sums) -> int:
        """Parts of the whole that a replica of a kind does within a time, up to all of them."""
        room, row_ns = self._rows[i]
        left_ns = time_ns - (self.kinds[i].stages - 1) * sums.row[i]
        all_ns = sums.work[i] + row_ns * -(-sums.content // room)
        if not all_ns:
            return PARTS * (left_ns >= 0)
        return max(0, min(PARTS, left_ns * PARTS // all_ns))

    def micro_batches(self, atoms: Sequence[int], time_ns: int) -> list[int]:
        """Rows on each replica; of unlike ones each takes what it can until all is taken."""
        sums = reduce(self.with_atom, sorted(atoms, reverse=True), self.nothing)
        if len(self.kinds) == 1:
            [kind], [(room, _)] = self.kinds, self._rows
            return [-(-sums.content // (kind.count * room))] * kind.count
        left, rows = PARTS, []
        for one in self._strategy.replicas:
            i = next(n for n, kind in enumerate(self.kinds) if _alike(kind, one))
            most = self._share(i, time_ns - self._strategy.visit_ns, sums)
            for _ in range(one.count):
                share = min(left, most)
                left -= share
                rows.append(-(-share * sums.content // (PARTS * self._rows[i][0])))
        return rows

    def least_ns(self, atom: int) -> float:
        """What an atom adds to any set at least, were it divided to the last ns.

        Like replicas: its work and row time / dp. Unlike ones: with w_i for one of kind i alone,
        1 / sum of m_i / w_i, which is concave and doubles with w.
        """
        if self.measured:
            return self._strategy.atoms_ns[atom] or 0
        rates = 0.0
        for kind, each, (room, row_ns) in zip(self.kinds, self.each_ns, self._rows, strict=True):
            alone = self._counts[atom] * each[atom] + row_ns * self._contents[atom] / room
            if alone == 0:
                return 0
            rates += kind.count / alone
        return 1 / rates

    def work_ns(self, atom: int) -> float:
        """Of that, what it adds even to like replicas whose rows have room for it."""
        if self.measured or len(self.kinds) > 1:
            return self.least_ns(atom)
        return self._counts[atom] * self.each_ns[0][atom] / self.kinds[0].count

    def room_ns(self, sums: Sums) -> float:
        """Time of what rows of like replicas have room for."""
        if self.measured or len(self.kinds) > 1:
            return 0.0
        [kind], [(room, row_ns)] = self.kinds, self._rows
        in_turn = kind.count * room
        return -sums.content % in_turn / in_turn * row_ns

    def fill_ns(self, atom: int) -> int:
        """Of a set with this atom, beside the rows of its fullest replica, at least."""
        rows = zip(self.kinds, self.rows_ns, strict=True)
        fills = ((kind.stages - 1) * own[atom] for kind, own in rows)
        return min(fills, default=0) + self._strategy.visit_ns


def _time(ns: int | None) -> float:
    return inf if ns is None else ns


def _alike(one: ReplicasDocument, other: ReplicasDocument) -> bool:
    return one.model_copy(update={"count": 1}) == other.model_copy(update={"count": 1})


def _merged(replicas: Sequence[ReplicasDocument]) -> list[ReplicasDocument]:
    """Kinds with all their replicas."""
    kinds: list[ReplicasDocument] = []
    for one in replicas:
        same = next((n for n, kind in enumerate(kinds) if _alike(kind, one)), None)
        if same is None:
            kinds.append(one)
        else:
            total = kinds[same].count + one.count
            kinds[same] = one.model_copy(update={"count": total})
    return kinds
