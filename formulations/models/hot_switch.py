"""Which strategy runs which length atoms, and in which order: a step as a tour, in any order.

Sets. Strategies q, anchors r among them; atoms k that fit q.
Parameters. Times of switches: out[r][q], between[q][q'], back[q][r]; those of q: `set_times`,
visit[q], once[r] as anchor.
Variables. runs[q, k]; anchor[r]; last[q]: q is the anchor and runs last; visited[q]: it runs
before; out[r, q], between[q, q'], back[q, r]: switches of the tour; alone: there are none;
time[q], ns.
Objective. Sum of time[q], of visit[q] if visited or last, of once[r] of the anchor, and of
switches.
Constraints.
(1) Exactly one strategy runs each atom, and exactly one is the anchor.
(2) out, between, back and alone are a circuit through those visited, from the anchor and back,
    alone if none is; out[r, .] and back[., r] are of the anchor; last[q] <= anchor[q], and not
    where q is visited.
(3) q runs something if and only if it is visited or last.
(4) time[q] is that of what q runs: `set_times`.
(5) The objective is at most what is given: without, the first steps found are far from the best.
Assumptions. Each strategy has one group at most. An anchor that runs something runs it last, or
between two others: first, it would only send gradients besides.
Left out. Orders of atoms in a group.
Size. O(Q K + Q^2) literals and rows.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

from formulations.lengths.problem import Mixed, Switching
from formulations.lengths.strategy_time import strategy_times
from formulations.lengths.tour import Group, Tour, back_ns, between_ns, out_ns
from formulations.models.cpsat import CpSat
from formulations.models.model import Linear, Literal, Pairs, negated, total_of, weighted
from formulations.models.set_times import SetTime

#: Name of a switch, its time, and its nodes in the circuit, where the anchor is 0.
_WAYS: tuple[
    tuple[str, Callable[[Switching, int, int], int | None], Callable[[int, int], tuple[int, int]]],
    ...,
] = (
    ("out", out_ns, lambda r, q: (0, q + 1)),
    ("between", between_ns, lambda a, b: (a + 1, b + 1)),
    ("back", back_ns, lambda q, r: (q + 1, 0)),
)


class HotSwitch:
    """The model of steps of at most `longest_ns`, in a problem where each atom fits a strategy.

    apart: pairs (q, k) for which (4) counts the longest sequences undivided.
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
        costs = self._tour(mixed.switching)
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
            SetTime(model, mixed, of_strategy, runs, longest_ns, atoms).term
            for of_strategy, runs, atoms in zip(times, self.runs, undivided, strict=True)
        ]
        step_ns = total_of(*sums, weighted(costs, literals))
        model.at_most(5, step_ns, longest_ns)
        model.minimize(step_ns)

    def _literals(self, name: str) -> list[Linear]:
        return [self.model.literal(f"{name}[{q}]") for q in self._strategies]

    def _tour(self, switching: Switching) -> list[int]:
        """(2) but for `last`; the times of all switches."""
        model, costs = self.model, list[int]()
        arcs: list[tuple[int, int, Literal]] = [
            (q + 1, q + 1, negated(visited)) for q, visited in enumerate(self.visited)
        ]
        alone = model.literal("alone")
        arcs.append((0, 0, alone))
        for visited in self.visited:
            model.implies(2, visited, negated(alone))
        for name, time, nodes in _WAYS:
            for a in self._strategies:
                for b in self._strategies:
                    cost_ns = time(switching, a, b)
                    if a == b or cost_ns is None:
                        continue
                    literal = model.literal(f"{name}[{a},{b}]")
                    self.switches[name, a, b] = literal
                    arcs.append((*nodes(a, b), literal))
                    costs.append(cost_ns)
        model.circuit(arcs)
        for r, anchor in enumerate(self.anchor):
            leaving = [b for (way, a, _), b in self.switches.items() if (way, a) == ("out", r)]
            coming = [b for (way, _, a), b in self.switches.items() if (way, a) == ("back", r)]
            out, back = total_of(*leaving), total_of(*coming)
            model.at_most(2, out, anchor)
            model.equal(2, back, out)
        return costs

    def assignment(self, tour: Tour) -> Pairs:
        """The literals of a tour in which each strategy has one group."""
        sets = {group.strategy: group.atoms for group in tour.groups}
        order = [group.strategy for group in tour.groups]
        last = order.pop() if order[-1] == tour.anchor else None
        switches = {("between", a, b) for a, b in pairwise(order)}
        if order:
            switches |= {("out", tour.anchor, order[0]), ("back", order[-1], tour.anchor)}
        for q in self._strategies:
            for k, literal in self.runs[q].items():
                yield literal, int(k in sets.get(q, ()))
            yield self.anchor[q], int(q == tour.anchor)
            yield self.last[q], int(q == last)
            yield self.visited[q], int(q in order)
        for key, literal in self.switches.items():
            yield literal, int(key in switches)

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
