"""How many pipelines of every template to start, and the micro-batches of each: one model.

Sets. Kinds of pipelines i, numbers of micro-batches q, node groups j.
Parameters. t_i(q), step of one pipeline, nondecreasing; n_ij nodes; N_j available; f faults; M
micro-batches; X_i, most pipelines of a kind; U, a step that is long enough; Q_i, the largest q
with t_i(q) <= U; e_i(x), exchange of gradients among x pipelines on the nodes of kind i.
Variables. count[i][q], 0..X_i, 1 <= q <= Q_i: pipelines of kind i with q micro-batches or more;
any[i][q]: whether there is one; number[x]: whether there are x pipelines; step; exchange.
Pipelines of a kind are alike: nonincreasing counts stand for their shares without order.
Objective. step + exchange.
Constraints.
(1) count[i][q+1] <= count[i][q], any[i][q+1] <= any[i][q].
(2) count[i][q] <= X_i any[i][q].
(3) sum over i, q of count[i][q] = M.
(4) sum over i of count[i][1] >= f + 1.
(5) sum over i of n_ij count[i][1] = N_j, or <= N_j if nodes may be idle.
(6) step >= sum over q of (t_i(q) - t_i(q-1)) any[i][q], for every i.
(7) one number[x] is 1, and sum over x of x number[x] = sum over i of count[i][1].
(8) exchange >= sum over x of e_i(x) number[x] if any[i][1], for every i.
(7), (8) and their variables are left out where the exchange takes no time.
Assumptions. Pipelines do not slow each other down; gradients are exchanged when all are done.
Size. O(sum of Q_i) integers, as many Boolean variables, three times as many rows.
"""

from collections.abc import Sequence
from itertools import pairwise

from ortools.sat.python import cp_model

from formulations.pipelines import Instantiation, InstantiationProblem, conjugate


class Built:
    """The model of an `InstantiationProblem`, its variables, and how to read a solution."""

    def __init__(self, problem: InstantiationProblem, latest_ns: int) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        self.count: list[list[cp_model.IntVar]] = []
        self.any: list[list[cp_model.IntVar]] = []
        self.number: dict[int, cp_model.IntVar] = {}
        self._step = self.model.new_int_var(0, latest_ns, "step")
        for i in range(len(problem.kinds)):
            self._add_kind(i, latest_ns)
        self._add_totals()
        self.model.minimize(self._step + self._exchange())

    def _add_kind(self, i: int, latest_ns: int) -> None:
        model, kind, most = self.model, self.problem.kinds[i], self.problem.most(i)
        counts = range(1, kind.capacity(latest_ns) + 1)
        count = [model.new_int_var(0, most, f"count[{i}][{q}]") for q in counts]
        some = [model.new_bool_var(f"any[{i}][{q}]") for q in counts]
        for more, less in pairwise(count):
            model.add(less <= more)  # (1)
        for more, less in pairwise(some):
            model.add_implication(less, more)  # (1)
        for number, literal in zip(count, some, strict=True):
            model.add(number <= most * literal)  # (2)
        times = [0, *kind.times_ns[: len(counts)]]
        rises = [int(later - earlier) for earlier, later in pairwise(times)]
        model.add(self._step >= cp_model.LinearExpr.weighted_sum(some, rises))  # (6)
        self.count.append(count)
        self.any.append(some)

    def _add_totals(self) -> None:
        model, problem = self.model, self.problem
        every = [number for own in self.count for number in own]
        model.add(cp_model.LinearExpr.sum(every) == problem.micro_batches)  # (3)
        started = [
            (kind, own[0]) for kind, own in zip(problem.kinds, self.count, strict=True) if own
        ]
        numbers = [number for _, number in started]
        model.add(cp_model.LinearExpr.sum(numbers) >= problem.faults + 1)  # (4)
        for j, available in enumerate(problem.available):
            used = cp_model.LinearExpr.weighted_sum(numbers, [kind.nodes[j] for kind, _ in started])
            model.add(used == available if problem.all_nodes else used <= available)  # (5)

    def _exchange(self) -> cp_model.LinearExpr | int:
        model, problem = self.model, self.problem
        if not problem.has_exchange:
            return 0
        numbers = range(problem.faults + 1, problem.most_pipelines + 1)
        self.number = {x: model.new_bool_var(f"number[{x}]") for x in numbers}
        literals = list(self.number.values())
        model.add_exactly_one(literals)  # (7)
        started = [own[0] for own in self.count if own]
        total = cp_model.LinearExpr.weighted_sum(literals, list(numbers))
        model.add(total == cp_model.LinearExpr.sum(started))  # (7)
        most = max((max(kind.exchanges_ns, default=0) for kind in problem.kinds), default=0)
        exchange = model.new_int_var(0, most, "exchange")
        for kind, some in zip(problem.kinds, self.any, strict=True):
            if some:
                own = [kind.exchange_ns(x) for x in numbers]
                time = cp_model.LinearExpr.weighted_sum(literals, own)
                model.add(exchange >= time).only_enforce_if(some[0])  # (8)
        return exchange

    def hint(self, instantiation: Instantiation) -> None:
        """Suggest pipelines and shares."""
        for own, count, some in zip(instantiation.shares, self.count, self.any, strict=True):
            for q, (number, literal) in enumerate(zip(count, some, strict=True), start=1):
                pipelines = sum(share >= q for share in own)
                self.model.add_hint(number, pipelines)
                self.model.add_hint(literal, int(pipelines > 0))
        for x, literal in self.number.items():
            self.model.add_hint(literal, int(x == instantiation.num_pipelines))

    def extract(self, values: Sequence[float]) -> Instantiation:
        """The choice in a solution."""
        return Instantiation(
            tuple(conjugate([int(values[n.index]) for n in own]) for own in self.count)
        )


def build(problem: InstantiationProblem, latest_ns: int | None = None) -> Built:
    """The model; `latest_ns`: a step that some choice reaches, which makes it smaller."""
    return Built(problem, problem.latest_ns if latest_ns is None else latest_ns)
