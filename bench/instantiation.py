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
(2) count[i][q] <= X_i any[i][q], see `InstantiationProblem.most`.
(3) sum over i, q of count[i][q] = M.
(4) sum over i of count[i][1] >= f + 1.
(5) sum over i of n_ij count[i][1] = N_j, or <= N_j if nodes may be idle.
(6) step >= sum over q of (t_i(q) - t_i(q-1)) any[i][q], for every i.
(7) one number[x] is 1, and sum over x of x number[x] = sum over i of count[i][1].
(8) exchange >= sum over x of e_i(x) number[x] if any[i][1], for every i.
(7), (8) and their variables are left out where the exchange takes no time.
Assumptions. Pipelines do not slow each other down; gradients are exchanged when all are done.
Size. O(sum of Q_i) integers, as many literals, three times as many rows.
"""

from collections.abc import Sequence
from itertools import pairwise

from formulations.models.model import Linear, Model, Pairs, Term, negated, total_of, weighted
from formulations.pipelines import Instantiation, InstantiationProblem


class InstantiationModel:
    """The model of an `InstantiationProblem`, its variables, and how to read a solution.

    latest_ns: a step that some choice reaches, which makes the model smaller.
    """

    def __init__(
        self, model: Model, problem: InstantiationProblem, latest_ns: int | None = None
    ) -> None:
        self.model, self.problem = model, problem
        self.count: list[list[Linear]] = []
        self.any: list[list[Linear]] = []
        self.number: dict[int, Linear] = {}
        latest_ns = problem.latest_ns if latest_ns is None else latest_ns
        step = model.time("step", latest_ns)
        for i, kind in enumerate(problem.kinds):
            pipelines, counts = problem.most(i), range(1, kind.capacity(latest_ns) + 1)
            count = [model.integer(f"count_{i}_{q}", pipelines) for q in counts]
            started = [model.literal(f"any_{i}_{q}") for q in counts]
            for row in (count, started):
                for more, less in pairwise(row):
                    model.at_most(1, less, more)
            for number, literal in zip(count, started, strict=True):
                model.at_most(2, number, weighted([pipelines], [literal]))
            times = [0, *kind.times_ns[: len(counts)]]
            rises = [int(later - earlier) for earlier, later in pairwise(times)]
            model.at_most(6, weighted(rises, started), step)
            self.count.append(count)
            self.any.append(started)
        self._add_totals()
        model.minimize(total_of(step, self._exchange()))

    def _add_totals(self) -> None:
        model, problem = self.model, self.problem
        every = [number for count in self.count for number in count]
        model.equal(3, total_of(*every), problem.micro_batches)
        started = [
            (kind, count[0]) for kind, count in zip(problem.kinds, self.count, strict=True) if count
        ]
        numbers = [number for _, number in started]
        model.at_most(4, problem.faults + 1, total_of(*numbers))
        require = model.equal if problem.all_nodes else model.at_most
        for j, available in enumerate(problem.available):
            require(5, weighted([kind.nodes[j] for kind, _ in started], numbers), available)

    def _exchange(self) -> Term:
        model, problem = self.model, self.problem
        if not problem.has_exchange:
            return 0
        numbers = range(problem.faults + 1, problem.most_pipelines + 1)
        self.number = {x: model.literal(f"number_{x}") for x in numbers}
        literals = list(self.number.values())
        model.exactly_one(7, literals)
        started = [count[0] for count in self.count if count]
        model.equal(7, weighted(numbers, literals), total_of(*started))
        exchanges = [[kind.exchange_ns(x) for x in numbers] for kind in problem.kinds]
        longest_ns = [max(times, default=0) for times in exchanges]
        exchange = model.time("exchange", max(longest_ns, default=0))
        for times, longest, any_ in zip(exchanges, longest_ns, self.any, strict=True):
            if any_:
                time = weighted([*times, -longest], [*literals, negated(any_[0])])
                model.at_most(8, time, exchange)
        return exchange

    def assignment(self, instantiation: Instantiation) -> Pairs:
        """The whole variables of a choice."""
        for shares, count, started in zip(instantiation.shares, self.count, self.any, strict=True):
            for q, (number, literal) in enumerate(zip(count, started, strict=True), start=1):
                pipelines = sum(share >= q for share in shares)
                yield number, pipelines
                yield literal, int(pipelines > 0)
        for x, variable in self.number.items():
            yield variable, int(x == sum(instantiation.counts))

    def hint(self, instantiation: Instantiation) -> None:
        """Suggest pipelines and shares."""
        self.model.hint(self.assignment(instantiation))

    def extract(self, values: Sequence[float]) -> Instantiation:
        """The choice in a solution."""
        value = self.model.solution(values).value
        return Instantiation(tuple(conjugate(list(map(value, count))) for count in self.count))


def conjugate(counts: Sequence[int]) -> tuple[int, ...]:
    """Shares, descending, of which counts[q - 1] are at least q; `counts` is nonincreasing."""
    num_shares = counts[0] if counts else 0
    return tuple(sum(count > r for count in counts) for r in range(num_shares))
