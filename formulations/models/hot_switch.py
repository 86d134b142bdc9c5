"""Which strategy runs which length atoms, and in which order: a step as a tour, in any order.

Sets. Strategies q, anchors r among them; atoms k that fit q; kinds i of a strategy's replicas, m_i
of each.
Parameters. Times of switches: out[r][q], between[q][q'], back[q][r]; visit[q]; once[r] as anchor.
Of a strategy work, content, number and peak of atoms; p stages, room R in a row, row time c of a
kind: tokens, or padded sequences, of which a row has room for one, whose time is part of its work.
Variables. runs[q, k]; anchor[r]; last[q]: q is the anchor and runs last; visited[q]: it runs
before; out[r, q], between[q, q'], back[q, r]: switches of the tour; alone: there are none;
time[q], ns. Of a strategy peak: its longest row, ns; share: work on each of dp like replicas;
rows[i] on one replica; of unlike ones takes[i], and parts[i] of PARTS; whole[i, k] sequences of k
and longer ones.
Objective. Sum of time[q], of visit[q] if visited or last, of once[r] of the anchor, and of
switches. Minimisation makes what is rounded up the least it may be.
Constraints.
(1) Exactly one strategy runs each atom, and exactly one is the anchor.
(2) out, between, back and alone are a circuit through those visited, from the anchor and back,
    alone if none is; out[r, .] and back[., r] are of the anchor; last[q] <= anchor[q], and not
    where q is visited.
(3) q runs something if and only if it is visited or last.
(4) The objective is at most what is given: without, the first steps found are far from the best.
Of the time of a strategy, by the definition of `formulations.lengths.strategy_time`, exactly with
all k in (6) and (7): most of them never decide, and are left out until they do.
(5) peak >= peak[k] runs[k], the longest row that k brings.
(6) Like: time = share + c rows + (p - 1) peak; dp share >= work; R dp rows >= content; for some k,
    share >= sequence time of k * whole[k], dp whole[k] >= number of those >= k that run.
(7) Unlike: sum over k of work[i, k] taken[i, k] + c_i filled[i] <= PARTS (time - (p_i - 1) peak_i)
    if takes[i]; taken[i, k] >= parts[i] if k runs; filled[i] = parts[i] rows[i], R_i rows_i >=
    content; sum of m_i parts[i] >= PARTS if anything runs; for some k, time >= sequence time of k *
    whole[i, k], and sum of m_i whole[i, k] >= number of those >= k that run. (A product of parts
    and of all work, of 10^14 and more, made presolve of OR-Tools 9.15 lose optima.)
(8) Cut for (7): time >= sum over k of h(k), h(k) = 1 / sum of m_i / work_i(k). For h is concave
    and doubles with work, so that h(w + w') >= h(w) + h(w').
Assumptions. Each strategy has one group at most. An anchor that runs something runs it last, or
between two others: first, it would only send gradients besides.
Left out. Orders of atoms in a group.
Size. O(Q K + Q^2) literals and rows, O(K) for every kind.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, permutations
from math import floor

import numpy as np

from formulations.lengths.problem import Mixed
from formulations.lengths.strategy_time import NEVER, PARTS, StrategyTimes, strategy_times
from formulations.lengths.tour import Group, Tour, switch_tables
from formulations.models.cpsat import CpSat
from formulations.models.model import Linear, Literal, Term, negated, total_of, weighted

#: Nodes of switches in the circuit, where the anchor is 0.
_NODES: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "out": lambda r, q: (0, q + 1),
    "between": lambda a, b: (a + 1, b + 1),
    "back": lambda q, r: (q + 1, 0),
}


class HotSwitch:
    """The model of steps of at most `longest_ns`, in a problem where each atom fits a strategy.

    apart: pairs (q, k) for which (6) and (7) count the longest sequences undivided.
    """

    def __init__(self, mixed: Mixed, longest_ns: int, apart: Collection[tuple[int, int]]) -> None:
        self.model = model = CpSat()
        times = strategy_times(mixed)
        self._strategies = range(len(mixed.strategies))
        self.runs = [
            {k: model.literal(f"runs[{q},{k}]") for k, fits in enumerate(each.fits) if fits}
            for q, each in enumerate(times)
        ]
        for k in range(len(mixed.atoms)):
            model.exactly_one(1, [runs[k] for runs in self.runs if k in runs])
        self.anchor = self._literals("anchor")
        model.exactly_one(1, self.anchor)
        self.last, self.visited = self._literals("last"), self._literals("visited")
        self.switches: dict[tuple[str, int, int], Linear] = {}
        costs = self._tour(mixed)
        literals = [*self.switches.values(), *self.last, *self.visited, *self.anchor]
        visits = [strategy.visit_ns for strategy in mixed.strategies]
        costs += [*visits, *visits, *(strategy.anchor_ns for strategy in mixed.strategies)]
        for q, runs in enumerate(self.runs):
            last, used = self.last[q], total_of(self.last[q], self.visited[q])
            model.implies(2, last, self.anchor[q])
            model.some_of(2, (), last, self.visited[q])
            for literal in runs.values():
                model.at_most(3, literal, used)
            model.at_most(3, used, total_of(*runs.values()))
        undivided = [{k for r, k in apart if r == q} for q in self._strategies]
        sums = [
            _SetTime(model, mixed, of_strategy, runs, longest_ns, atoms).term
            for of_strategy, runs, atoms in zip(times, self.runs, undivided, strict=True)
        ]
        step_ns = total_of(*sums, weighted(costs, literals))
        model.at_most(4, step_ns, longest_ns)
        model.minimize(step_ns)

    def _literals(self, name: str) -> list[Linear]:
        return [self.model.literal(f"{name}[{q}]") for q in self._strategies]

    def _tour(self, mixed: Mixed) -> list[int]:
        """(2) but for `last`; the times of all switches."""
        model, costs = self.model, list[int]()
        arcs: list[tuple[int, int, Literal]] = [
            (q + 1, q + 1, negated(visited)) for q, visited in enumerate(self.visited)
        ]
        alone = model.literal("alone")
        arcs.append((0, 0, alone))
        for visited in self.visited:
            model.implies(2, visited, negated(alone))
        for name, table in switch_tables(mixed).items():
            for a, b in permutations(self._strategies, 2):
                if table[a, b] < NEVER:
                    literal = self.switches[name, a, b] = model.literal(f"{name}[{a},{b}]")
                    arcs.append((*_NODES[name](a, b), literal))
                    costs.append(int(table[a, b]))
        model.circuit(arcs)
        for r, anchor in enumerate(self.anchor):
            leaving = [b for (way, a, _), b in self.switches.items() if (way, a) == ("out", r)]
            coming = [b for (way, _, a), b in self.switches.items() if (way, a) == ("back", r)]
            out, back = total_of(*leaving), total_of(*coming)
            model.at_most(2, out, anchor)
            model.equal(2, back, out)
        return costs

    def extract(self, values: Sequence[float]) -> Tour:
        """The tour of a solution."""
        holds = self.model.solution(values).value
        anchor = next(r for r in self._strategies if holds(self.anchor[r]))
        following = {}
        for (name, a, b), literal in self.switches.items():
            if holds(literal):
                following[None if name == "out" else a] = None if name == "back" else b
        order, strategy = list[int](), following.get(None)
        while strategy is not None:
            order.append(strategy)
            strategy = following[strategy]
        order += [q for q in self._strategies if holds(self.last[q])]
        sets = [tuple(k for k, runs in self.runs[q].items() if holds(runs)) for q in order]
        return Tour(anchor, tuple(map(Group, order, sets)))


class _SetTime:
    """Time of a strategy for the atoms that it runs, `term`, 0 for none; ns, `longest_ns` or less.

    apart: the atoms k of (6) and (7); the fewer, the less it may be below the definition's time.
    """

    def __init__(
        self,
        model: CpSat,
        mixed: Mixed,
        times: StrategyTimes,
        runs: Mapping[int, Linear],
        longest_ns: int,
        apart: Collection[int],
    ) -> None:
        self._model, self._times, self._runs, self._apart = model, times, runs, apart
        self._count = [atom.count for atom in mixed.atoms]
        #: [atom that may run] sequences of it and of longer ones
        self._numbers = list(accumulate(self._count[k] for k in reversed([*runs])))[::-1]
        self.term: Term = 0
        if times.measured:
            self.term = self._sum(times.work_ns[0].tolist())
        elif runs:
            self.term = self._like() if len(times.alike) == 1 else self._unlike(longest_ns)

    def _sum(self, values: Sequence[int]) -> Term:
        return weighted((values[k] for k in self._runs), self._runs.values())

    def _peak(self, peaks: Sequence[int]) -> Linear:
        """(5); the largest of peaks[atom] over the atoms that run."""
        peak = self._model.time("peak", max(peaks[k] for k in self._runs))
        for k, runs in self._runs.items():
            self._model.at_most(5, weighted([peaks[k]], [runs]), peak)
        return peak

    def _quotient(self, values: Sequence[int], divisor: int, name: str, up_to: int = 0) -> Linear:
        """An integer >= the sum of the values of what runs / divisor; up to `up_to` or more."""
        largest = -(-sum(values[k] for k in self._runs) // divisor)
        quotient = self._model.integer(name, max(up_to, largest))
        self._model.at_most(6, self._sum(values), weighted([divisor], [quotient]))
        return quotient

    def _like(self) -> Term:
        """(6)."""
        times, dp = self._times, self._times.alike[0]
        apart_ns = times.apart_ns(np.array([*self._runs]), np.array(self._numbers))
        share = self._quotient(times.work_ns[0].tolist(), dp, "work", int(apart_ns.max()))
        self._add_apart(share)
        rows = self._quotient(times.content.tolist(), dp * times.room[0], "rows")
        fill = weighted(times.further, [self._peak(times.longest_row_ns[0].tolist())])
        return total_of(share, weighted(times.row_ns, [rows]), fill)

    def _unlike(self, longest_ns: int) -> Term:
        """(7) and (8)."""
        model, times = self._model, self._times
        time, shares = model.time("time", longest_ns), list[Term]()
        works, peaks = times.work_ns.tolist(), times.longest_row_ns.tolist()
        # (8)
        fastest = [
            floor(1 / sum(Fraction(m, max(w, 1)) for m, w in zip(times.alike, each, strict=True)))
            for each in zip(*works, strict=True)
        ]
        model.at_most(8, self._sum(fastest), time)
        # (7): by kind
        for i, alike in enumerate(times.alike):
            rows = self._quotient(times.content.tolist(), times.room[i], f"rows[{i}]")
            parts, takes = model.integer(f"parts[{i}]", PARTS), model.literal(f"takes[{i}]")
            model.at_most(7, parts, weighted([PARTS], [takes]))
            taken = list[Linear]()
            for k, runs in self._runs.items():
                taken.append(model.integer(f"taken[{i},{k}]", PARTS))
                model.at_most(7, weighted([1, PARTS, -PARTS], [parts, runs, 1]), taken[-1])
            done = weighted((works[i][k] for k in self._runs), taken)
            if c := times.row_ns[i]:
                filled = model.product(f"filled[{i}]", PARTS * model.upper(rows), parts, rows)
                done = weighted([1, c], [done, filled])
            before = -PARTS * times.further[i]
            room = weighted([PARTS, before], [time, self._peak(peaks[i])])
            model.at_most(7, done, room, takes)
            shares.append(weighted([alike], [parts]))
        for literal in self._runs.values():
            model.at_most(7, PARTS, total_of(*shares), literal)
        self._add_apart(time)
        return time

    def _add_apart(self, time: Linear) -> None:
        """The time is at least that of the n longest sequences, each as the shortest of them.

        For a length that does not run as well: the next longer one that does takes no less.
        """
        longer: Term = 0
        for k, number in reversed(list(zip(self._runs, self._numbers, strict=True))):
            longer = weighted([1, self._count[k]], [longer, self._runs[k]])
            if k not in self._apart:
                continue
            counted: Term = 0
            each_ns = self._times.sequence_ns[:, k].tolist()
            for alike, sequence_ns in zip(self._times.alike, each_ns, strict=True):
                sequences = self._model.integer(f"whole[{k}]", -(-number // alike))
                self._model.at_most(7, weighted([sequence_ns], [sequences]), time)
                counted = weighted([1, alike], [counted, sequences])
            self._model.at_most(7, longer, counted)
