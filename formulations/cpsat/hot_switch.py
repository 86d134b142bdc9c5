"""Which strategy runs which length atoms, and in which order: a step as a tour, in any order.

Sets. Strategies q, anchors r among them; atoms k that fit q.
Parameters. Times of switches: out[r][q], between[q][q'], back[q][r]; those of q: `set_times`,
visit[q], once[r] as anchor.
Variables. runs[q, k]; anchor[r]; own[q]: q is the anchor and runs last; visited[q]: it runs before;
out[r, q], between[q, q'], back[q, r]: switches of the tour; alone: there are none; time[q], ns.
Objective. Sum of time[q], of visit[q] if visited or own, of once[r] of the anchor, and of switches.
Constraints.
(1) Exactly one strategy runs each atom, and exactly one is the anchor.
(2) out, between, back and alone are a circuit through those visited, from the anchor and back,
    alone if none is; out[r, .] and back[., r] are of the anchor; own[q] <= anchor[q], and not where
    q is visited.
(3) q runs something if and only if it is visited or own.
(4) time[q] is that of what q runs: `set_times`.
(5) The objective is at most what is given: without, the first steps found are far from the best.
Assumptions. Each strategy has one group at most. An anchor that runs something runs it last, or
between two others: first, it would only send gradients besides.
Left out. Orders of atoms in a group.
Size. O(Q K + Q^2) binary variables and rows.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

from ortools.sat.python import cp_model

from formulations.cpsat.set_times import time_of
from formulations.cpsat.terms import total_of, weighted
from formulations.lengths.problem import Mixed, Switching
from formulations.lengths.strategy_time import strategy_times
from formulations.lengths.tour import Group, Tour, back_ns, between_ns, out_ns

#: Name of a switch, its time, and its nodes in the circuit, where the anchor is 0.
_WAYS: tuple[
    tuple[str, Callable[[Switching, int, int], int | None], Callable[[int, int], tuple[int, int]]],
    ...,
] = (
    ("out", out_ns, lambda r, q: (0, q + 1)),
    ("between", between_ns, lambda a, b: (a + 1, b + 1)),
    ("back", back_ns, lambda q, r: (q + 1, 0)),
)


class Built:
    """The model, its variables, and how to read a solution; most_ns: no step takes longer.

    apart: pairs (q, k) for which (4) counts the longest sequences undivided.
    """

    def __init__(self, mixed: Mixed, most_ns: int, apart: Collection[tuple[int, int]]) -> None:
        self.model = model = cp_model.CpModel()
        times = strategy_times(mixed)
        self._known = range(len(mixed.strategies))
        self.runs = [
            {k: model.new_bool_var(f"runs[{q},{k}]") for k, fits in enumerate(own.fits) if fits}
            for q, own in enumerate(times)
        ]
        for k in range(len(mixed.atoms)):
            model.add_exactly_one(runs[k] for runs in self.runs if k in runs)  # (1)
        self.anchor = self._literals("anchor")
        model.add_exactly_one(self.anchor)  # (1)
        self.own, self.visited = self._literals("own"), self._literals("visited")
        self.switches: dict[tuple[str, int, int], cp_model.IntVar] = {}
        costs = self._tour(mixed.switching)
        literals = [*self.switches.values(), *self.own, *self.visited, *self.anchor]
        visits = [one.visit_ns for one in mixed.strategies]
        costs += [*visits, *visits, *(one.anchor_ns for one in mixed.strategies)]
        for q in self._known:
            self._use(q)
        whole = [{k for own, k in apart if own == q} for q in self._known]
        sums = [
            time_of(model, mixed, own, runs, most_ns, ks)
            for own, runs, ks in zip(times, self.runs, whole, strict=True)
        ]
        step_ns = total_of(*sums, weighted(costs, literals))
        model.add(step_ns <= most_ns)  # (5)
        model.minimize(step_ns)

    def _literals(self, name: str) -> list[cp_model.IntVar]:
        return [self.model.new_bool_var(f"{name}[{q}]") for q in self._known]

    def _tour(self, switching: Switching) -> list[int]:
        """(2) but for `own`; the times of all switches."""
        model, costs = self.model, list[int]()
        arcs = [(q + 1, q + 1, ~visited) for q, visited in enumerate(self.visited)]
        alone = model.new_bool_var("alone")
        arcs.append((0, 0, alone))
        for visited in self.visited:
            model.add_implication(visited, ~alone)
        for name, time, nodes in _WAYS:
            for a in self._known:
                for b in self._known:
                    cost_ns = time(switching, a, b)
                    if a == b or cost_ns is None:
                        continue
                    literal = model.new_bool_var(f"{name}[{a},{b}]")
                    self.switches[name, a, b] = literal
                    arcs.append((*nodes(a, b), literal))
                    costs.append(cost_ns)
        model.add_circuit(arcs)
        for r, anchor in enumerate(self.anchor):
            out, back = self._of("out", r, None), self._of("back", None, r)
            model.add(sum(out) <= anchor)
            model.add(sum(back) == sum(out))
        return costs

    def _of(self, name: str, start: int | None, end: int | None) -> list[cp_model.IntVar]:
        return [
            literal
            for (own, a, b), literal in self.switches.items()
            if own == name and start in (None, a) and end in (None, b)
        ]

    def _use(self, q: int) -> None:
        """(2) of `own`, and (3)."""
        own, visited, runs = self.own[q], self.visited[q], self.runs[q].values()
        self.model.add_implication(own, self.anchor[q])
        self.model.add_at_most_one(own, visited)
        for literal in runs:
            self.model.add(literal <= own + visited)
        self.model.add(sum(runs) >= own + visited)

    def hint(self, tour: Tour) -> None:
        """Suggest a tour in which each strategy has one group."""
        add = self.model.add_hint
        sets = {group.strategy: group.atoms for group in tour.groups}
        order = [group.strategy for group in tour.groups]
        own = order.pop() if order[-1] == tour.anchor else None
        switches = {("between", a, b) for a, b in pairwise(order)}
        if order:
            switches |= {("out", tour.anchor, order[0]), ("back", order[-1], tour.anchor)}
        for q in self._known:
            for k, literal in self.runs[q].items():
                add(literal, int(k in sets.get(q, ())))
            add(self.anchor[q], int(q == tour.anchor))
            add(self.own[q], int(q == own))
            add(self.visited[q], int(q in order))
        for key, literal in self.switches.items():
            add(literal, int(key in switches))

    def extract(self, values: Sequence[float]) -> Tour:
        """The tour of a solution."""

        def holds(literal: cp_model.IntVar) -> bool:
            return bool(values[literal.index])

        anchor = next(r for r in self._known if holds(self.anchor[r]))
        following = {}
        for (name, a, b), literal in self.switches.items():
            if holds(literal):
                following[None if name == "out" else a] = None if name == "back" else b
        order, last = list[int](), following.get(None)
        while last is not None:
            order.append(last)
            last = following[last]
        order += [q for q in self._known if holds(self.own[q])]
        sets = [tuple(k for k, runs in self.runs[q].items() if holds(runs)) for q in order]
        return Tour(anchor, tuple(map(Group, order, sets)))


def build(mixed: Mixed, most_ns: int, apart: Collection[tuple[int, int]]) -> Built:
    """The model of steps of at most `most_ns`, in a problem in which each atom fits a strategy."""
    return Built(mixed, most_ns, apart)
