"""Which strategy runs which length atoms, and in which order: a step as a tour, in any order.

Sets. Strategies q, anchors r among them; atoms k that fit q; kinds i of a strategy's replicas.
Parameters. Times of switches: out[r][q], between[q][q'], back[q][r]; visit[q]; once[r] as anchor.
Of a strategy, as `formulations.lengths.strategy_time` has them: work, content, number and peak of
atoms; dp replicas; of a kind p stages, room R in a row, row time c.
Variables. runs[q, k]; anchor[r]; last[q]: q is the anchor and runs last; visited[q]: it runs
before; out[r, q], between[q, q'], back[q, r]: switches of the tour; alone: there are none. Of a
strategy share, ns; whole[k]: sequences of k and longer ones on one replica; beside, ns: what
comes to the share; of a kind rows on one replica; peak: its longest row, ns.
Objective. Sum of share[q] and beside[q], of visit[q] if visited or last, of once[r] of the anchor,
and of switches. Minimisation makes what is rounded up the least it may be.
Constraints.
(1) Exactly one strategy runs each atom, and exactly one is the anchor.
(2) out, between, back and alone are a circuit through those visited, from the anchor and back,
    alone if none is; out[r, .] and back[., r] are of the anchor; last[q] <= anchor[q], and not
    where q is visited.
(3) q runs something if and only if it is visited or last.
(4) The objective is at most what is given, if anything is: without, the first steps found are far
    from the best.
(5) peak >= peak[k] runs[k], the longest row that k brings.
(6) dp share >= work; share >= sequence time of k * whole[k], dp whole[k] >= number of those >= k
    that run: for a k that does not run, the next longer one that does takes no less.
(7) beside >= c rows + (p - 1) peak, of every kind; dp R rows >= content.
Assumptions. Each strategy has one group at most. An anchor that runs something runs it last, or
between two others: first, it would only send gradients besides.
Left out. Orders of atoms in a group.
Size. O(Q K + Q^2) literals and rows, O(K) for every kind.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations

import numpy as np

from formulations.costs.intervals import Array
from formulations.lengths.problem import Mixed
from formulations.lengths.strategy_time import NEVER, StrategyTimes, strategy_times
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
    """The model of steps of at most `longest_ns`, if given; every atom fits some strategy."""

    def __init__(self, mixed: Mixed, longest_ns: int | None) -> None:
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
        count = [atom.count for atom in mixed.atoms]
        pairs = zip(times, self.runs, strict=True)
        sums = [_set_ns(model, of_strategy, runs, count) for of_strategy, runs in pairs]
        step_ns = total_of(*sums, weighted(costs, literals))
        if longest_ns is not None:
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
        for name, table in switch_tables(mixed.switching).items():
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


def _set_ns(
    model: CpSat, times: StrategyTimes, runs: Mapping[int, Linear], count: Sequence[int]
) -> Term:
    """Time of a strategy for the atoms that it runs, 0 for none, without the visit; ns.

    With variables no larger than all atoms make them: dp of them stay within 64 bits.
    """

    def total(values: Array) -> Term:
        return weighted((values[k] for k in runs), runs.values())

    work = total(times.work_ns)
    if times.measured or not runs:
        return work
    atoms = np.array([*runs])[::-1]
    most = np.cumsum(np.array(count)[atoms])  # sequences of each atom and longer ones
    apart_ns = int(times.apart_ns(atoms, most).max())
    share = model.time("share", max(-(-int(times.work_ns[atoms].sum()) // times.dp), apart_ns))
    model.at_most(6, work, weighted([times.dp], [share]))
    number: Term = 0
    for k, most_of_k in zip(atoms.tolist(), most.tolist(), strict=True):
        number = weighted([1, count[k]], [number, runs[k]])
        sequences = model.integer(f"whole[{k}]", -(-most_of_k // times.dp))
        model.at_most(6, number, weighted([times.dp], [sequences]))
        model.at_most(6, weighted([times.sequence_ns[k]], [sequences]), share)
    kinds = list[Term]()
    for i, room in enumerate(times.room):
        divisor, content = times.dp * room, times.content[i]
        rows = model.integer("rows", -(-int(content.sum()) // divisor))
        model.at_most(7, total(content), weighted([divisor], [rows]))
        peaks = times.longest_row_ns[i].tolist()
        peak = model.time("peak", max(peaks))
        for k, literal in runs.items():
            model.at_most(5, weighted([peaks[k]], [literal]), peak)
        kinds.append(weighted([times.row_ns[i], times.further[i]], [rows, peak]))
    beside = kinds[0]
    if len(kinds) > 1:
        beside = model.time("beside", max(map(model.upper, kinds)))
        for of_kind in kinds:
            model.at_most(7, of_kind, beside)
    return total_of(share, beside)
