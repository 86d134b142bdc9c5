"""How many pipelines of every template to start, and the micro-batches of each: one model.

Sets. Kinds of pipelines i, numbers of micro-batches q, node groups j.
Parameters. t_i(q), step of one pipeline, nondecreasing; n_ij nodes; N_j available; f faults; M
micro-batches; X_i, most pipelines of a kind; U, a step that is long enough; Q_i, the largest q
with t_i(q) <= U; e_i(x), exchange of gradients among x pipelines on the nodes of kind i.
Variables. count[i][q], whole, 0..X_i, 1 <= q <= Q_i: pipelines of kind i with q micro-batches or
more; any[i][q], binary: whether there is one; number[x], binary: whether there are x pipelines;
step; exchange. Pipelines of a kind are alike: nonincreasing
counts stand for their shares without order.
Objective. step + exchange.
Constraints.
(1) count[i][q+1] <= count[i][q], any[i][q+1] <= any[i][q].
(2) count[i][q] <= X_i any[i][q], see `InstantiationProblem.most`.
(3) sum over i, q of count[i][q] = M.
(4) sum over i of count[i][1] >= f + 1.
(5) sum over i of n_ij count[i][1] = N_j, or <= N_j if nodes may be idle.
(6) step >= sum over q of (t_i(q) - t_i(q-1)) any[i][q], for every i.
(7) sum over x of number[x] = 1, sum over x of x number[x] = sum over i of count[i][1].
(8) exchange >= sum over x of e_i(x) number[x] - E_i (1 - any[i][1]), for every i; E_i: `big_m`.
(7), (8) and their variables are left out where the exchange takes no time.
Assumptions. Pipelines do not slow each other down; gradients are exchanged when all are done.
Size. O(sum of Q_i) whole and as many binary variables, three times as many rows.
"""

from collections.abc import Sequence
from itertools import pairwise

import pulp

from formulations.milp.big_m import not_chosen
from formulations.milp.parts import Assignment, Values
from formulations.milp.terms import (
    Linear,
    binary,
    duration,
    require_at_most,
    require_equal,
    total_of,
    weighted,
)
from formulations.pipelines import Instantiation, InstantiationProblem, conjugate


class Built:
    """The model of an `InstantiationProblem`, its variables, and how to read a solution."""

    def __init__(self, problem: InstantiationProblem, latest_ns: int) -> None:
        self.problem = problem
        self.model = pulp.LpProblem("instantiation")
        self.count: list[list[pulp.LpVariable]] = []
        self.any: list[list[pulp.LpVariable]] = []
        self.number: dict[int, pulp.LpVariable] = {}
        self._step = duration(self.model, "step", latest_ns)
        for i in range(len(problem.kinds)):
            self._add_kind(i, latest_ns)
        self._add_totals()
        self.model.setObjective(pulp.LpAffineExpression(self._step) + self._exchange())

    def _add_kind(self, i: int, latest_ns: int) -> None:
        model, kind, most = self.model, self.problem.kinds[i], self.problem.most(i)
        counts = range(1, kind.capacity(latest_ns) + 1)
        count = [model.add_variable(f"count_{i}_{q}", 0, most, pulp.LpInteger) for q in counts]
        some = [binary(model, f"any_{i}_{q}") for q in counts]
        for row in (count, some):
            for more, less in pairwise(row):
                require_at_most(model, 1, less, more)
        for number, literal in zip(count, some, strict=True):
            require_at_most(model, 2, number, weighted([most], [literal]))
        times = [0, *kind.times_ns[: len(counts)]]
        rises = [int(later - earlier) for earlier, later in pairwise(times)]
        require_at_most(model, 6, weighted(rises, some), self._step)
        self.count.append(count)
        self.any.append(some)

    def _add_totals(self) -> None:
        model, problem = self.model, self.problem
        every = [number for own in self.count for number in own]
        require_equal(model, 3, total_of(*every), problem.micro_batches)
        started = [
            (kind, own[0]) for kind, own in zip(problem.kinds, self.count, strict=True) if own
        ]
        numbers = [number for _, number in started]
        require_at_most(model, 4, problem.faults + 1, total_of(*numbers))
        require = require_equal if problem.all_nodes else require_at_most
        for j, available in enumerate(problem.available):
            used = weighted([kind.nodes[j] for kind, _ in started], numbers)
            require(model, 5, used, available)

    def _exchange(self) -> Linear:
        model, problem = self.model, self.problem
        if not problem.has_exchange:
            return 0
        numbers = range(problem.faults + 1, problem.most_pipelines + 1)
        self.number = {x: binary(model, f"number_{x}") for x in numbers}
        literals = list(self.number.values())
        require_equal(model, 7, total_of(*literals), 1)
        started = [own[0] for own in self.count if own]
        require_equal(model, 7, weighted(numbers, literals), total_of(*started))
        exchange = duration(model, "exchange")
        for kind, some in zip(problem.kinds, self.any, strict=True):
            if some:
                times = [kind.exchange_ns(x) for x in numbers]
                time = weighted(times, literals)
                slack = not_chosen(max(times, default=0), some[0])
                require_at_most(model, 8, weighted([1, -1], [time, slack]), exchange)
        return exchange

    def assignment(self, instantiation: Instantiation) -> Assignment:
        """The whole variables of a choice."""
        for own, count, some in zip(instantiation.shares, self.count, self.any, strict=True):
            for q, (number, literal) in enumerate(zip(count, some, strict=True), start=1):
                pipelines = sum(share >= q for share in own)
                yield number, pipelines
                yield literal, int(pipelines > 0)
        for x, variable in self.number.items():
            yield variable, int(x == instantiation.num_pipelines)

    def hint(self, instantiation: Instantiation) -> None:
        """Suggest pipelines and shares."""
        for variable, value in self.assignment(instantiation):
            variable.setInitialValue(value)

    def extract(self, values: Sequence[float]) -> Instantiation:
        """The choice in a solution, which is indexed like the model's `variables()`."""
        named: Values = {
            v.name: round(x) for v, x in zip(self.model.variables(), values, strict=True)
        }
        return Instantiation(tuple(conjugate([named[n.name] for n in own]) for own in self.count))


def build(problem: InstantiationProblem, latest_ns: int | None = None) -> Built:
    """The model; `latest_ns`: a step that some choice reaches, which makes it smaller."""
    return Built(problem, problem.latest_ns if latest_ns is None else latest_ns)
