"""What the first stages of a split and the rest of it cost together, at least: heads and frontiers.

Of 1F1B more is known of a stage if those before it are, than what latency plus bottleneck says (see
`latency_bottleneck`). With r_i stages after stage i, w_i = min(r_i, m - 1), t_i its device time per
micro-batch, and slow_i the longest forward or backward of the stages up to i:

    end of the last backward of stage 0  >=  latency + steady_i + w_i slow_i          (1)
    steady_i  =  max((m - 1 - w_i) t_i,  steady_{i-1} + t_i + transfers between i - 1 and i),

the second only where r_{i-1} <= m - 2. Proof. B_i(x) is followed by F_i(x + r_i + 1) and that by
B_i(x + 1): a pair, of length t_i. F_i(y) of stage i leads on to F_e(y) of a later stage e, then
B_e(y - r_e), which is B_e(x + 2) for e = i + 1 and y = x + r_i + 1, and back up to stage i: a path
from B_i(x) to B_i(x + 1 + e - i) of length t_i and, for every stage k from i + 1 to e, t_k and the
transfers between k - 1 and k. So steady_e is the length, beyond that of going there and back once,
of a path through m - 1 - w_e steps from B_e(0) to B_e(m - 1 - w_e): m - 2 - r_i pairs at some stage
i <= e, then down to e. Path one: micro-batch 0 down to the last stage and back to stage e; these
steps; up to a stage j <= e; its w_e last backwards; up. Path two: the first w_e forwards at j <= e;
down to F_e(w_e), B_e(0), up to i; the same steps in the other order, which end with F_i(m - 1);
micro-batch m - 1 down and back. slow_e is the better of the two at the best j. With j = i = e this
is latency plus bottleneck. If m - 1 <= r_e all forwards of stage e may come first: no steps.

With blocking sends t_i and slow_i have the transfers that they send; steady does not add them.

Of sums and maxima along paths of the layered graph a frontier keeps what is undominated (Hansen
1980, bicriterion path problems), for some classes of slow_i before them.
"""

from dataclasses import dataclass

import numpy as np

from formulations.schedules import SCHEDULES
from solver.bounds.latency_bottleneck import added_by_rounds, latencies, least_term
from solver.layered.distinct import distinct
from solver.layered.edges import Edges, Layers, to_go
from solver.layered.problem import INFINITY, Array, Mask, SplitProblem

#: Classes of what stages add that a frontier tells apart, and of operations of stages before.
MOST_TERMS = 32
MOST_SLOW = 4


def _warm(problem: SplitProblem, stage: int, lane: int) -> int | None:
    """Number w of stages of the schedule (1) is stated for, else None."""
    if not SCHEDULES[problem.schedule].turns:
        return None
    return min(problem.num_stages - 1 - stage, problem.micro_batches[lane] - 1)


@dataclass(frozen=True)
class Head:
    """What N beginnings of splits say of one lane, [N] ns; term: of (1), the largest so far."""

    latency: Array
    term: Array
    steady: Array
    slow: Array

    def take(self, keep: Array | Mask | slice) -> "Head":
        """Those with these indices."""
        return Head(self.latency[keep], self.term[keep], self.steady[keep], self.slow[keep])

    def extended(
        self,
        problem: SplitProblem,
        stage: int,
        lane: int,
        edges: Edges,
        edge: Array,
        cost: Array,
        term: Array,
    ) -> "Head":
        """Those with one stage more, of these edges; cost, term: [M] of all edges of the stage."""
        latency = self.latency + cost[edge]
        term = np.maximum(self.term, term[edge])
        warm = _warm(problem, stage, lane)
        if warm is None:
            return Head(latency, term, self.steady, self.slow)
        work, turns = edges.work[lane, edge], problem.micro_batches[lane] - 1
        slow = np.maximum(self.slow, edges.longest[lane, edge])
        steady = (turns - warm) * work
        if problem.num_stages - stage < turns:
            sends = 0 if problem.blocking else edges.sends[lane, edge]
            steady = np.maximum(steady, self.steady + work + sends)
        return Head(latency, np.maximum(term, steady + warm * slow), steady, slow)


def no_stages() -> Head:
    """One beginning without any stage."""
    return Head(*(np.zeros(1, dtype=np.int64) for _ in range(4)))


@dataclass(frozen=True)
class Frontier:
    """Least latency of completions by their largest term, for one lane.

    low: [B] least term of every class of terms. slow: [K] least of every class of operations.
    latency: p + 1 times [K, nodes, B] least latency of completions whose terms, after operations
    of class K, are of class B or a lower one. above: p + 1 times [K, nodes, B + 1] least sum of
    that and `low` over a class and all higher ones.
    """

    low: Array
    slow: Array
    latency: list[Array]
    above: list[Array]

    def bound(self, stage: int, node: Array, head: Head) -> Array:
        """[N] least latency + largest term of whole splits that start with these ones.

        They end at `node`. A completion whose largest term is of class b has latency of at least
        `latency[., b]` and a largest term of at least `low[b]`; no whole split has a largest term
        below `low[0]`. Of classes with `low` below the head's term the highest has least latency.
        """
        own = np.searchsorted(self.slow, head.slow, side="right") - 1
        higher = np.searchsorted(self.low, head.term, side="right")
        within = self.latency[stage][own, node, np.maximum(higher - 1, 0)]
        within += np.maximum(head.term, self.low[0])
        return np.minimum(within, self.above[stage][own, node, higher]) + head.latency


def _classes(layers: Layers, costs: list[Array], lane: int, cutoff: int) -> tuple[Array, Array]:
    """Least and most [B] that stages add in the classes: all that matters below the cutoff.

    Classes of single terms and of what is between them, or if too many of equal width.
    """
    least = least_term(layers, lane)
    values = distinct(np.concatenate([edges.term[lane] for edges in layers]))
    most = min(cutoff - int(to_go(layers, costs)[0][0]), int(values[-1]))
    values = values[(values >= least) & (values <= most)]
    if 2 * len(values) <= MOST_TERMS:
        high = distinct(np.concatenate([values, values - 1, [most]]))
    else:
        high = distinct(np.linspace(least, most, MOST_TERMS).astype(np.int64))
    high = high[high >= least]
    low = np.concatenate([[least], high[:-1] + 1])
    high[-1] = INFINITY
    return low, high


def _slow(problem: SplitProblem, layers: Layers, lane: int) -> Array:
    """[K] least operation of the classes, ascending from 0."""
    if not SCHEDULES[problem.schedule].turns:
        return np.zeros(1, dtype=np.int64)
    longest = [edges.longest[lane] for edges in layers]
    least, most = max(int(own.min()) for own in longest), max(int(own.max()) for own in longest)
    return distinct(np.array([0, *np.linspace(least, most, MOST_SLOW - 1).astype(np.int64)]))


def frontier(problem: SplitProblem, layers: Layers, lane: int, cutoff: int) -> Frontier:
    """Completion frontier of one lane."""
    costs = latencies(layers, lane)
    (low, high), slow = _classes(layers, costs, lane, cutoff), _slow(problem, layers, lane)
    latency = [np.zeros((len(slow), layers[-1].num_targets, len(low)), dtype=np.int64)]
    for k in reversed(range(len(layers))):
        edges, rest = layers[k], latency[-1]
        terms, own = _terms(problem, k, lane, edges, slow)
        found = np.full((len(slow), edges.num_sources, len(low)), INFINITY)
        for c in range(len(slow)):
            onward = rest[np.maximum(own, c), edges.target]
            added = added_by_rounds(problem, edges, k, lane, onward.T).T
            above = np.maximum(terms[c][:, None], added) > high
            cost = np.where(above, INFINITY, costs[k][:, None] + onward)
            least = np.minimum.reduceat(cost, edges.first, axis=0)
            found[c, edges.source[edges.first]] = np.minimum(least, INFINITY)
        latency.append(found)
    return Frontier(low, slow, latency[::-1], [_above(table, low) for table in latency[::-1]])


def _above(latency: Array, low: Array) -> Array:
    """[K, nodes, B + 1] least sum of latency and `low` over a class and all higher ones."""
    found = np.full((*latency.shape[:-1], len(low) + 1), INFINITY)
    sums = (latency + low)[..., ::-1]
    found[..., :-1] = np.minimum.accumulate(sums, axis=-1)[..., ::-1]
    return found


def _terms(
    problem: SplitProblem, stage: int, lane: int, edges: Edges, slow: Array
) -> tuple[Array, Array]:
    """[K, M] terms of edges after operations of every class, and [M] classes of their own."""
    warm, longest = _warm(problem, stage, lane), edges.longest[lane]
    own: Array = np.searchsorted(slow, longest, side="right") - 1
    terms = np.broadcast_to(edges.term[lane], (len(slow), len(edges)))
    if warm is not None:
        steady = (problem.micro_batches[lane] - 1 - warm) * edges.work[lane]
        terms = np.maximum(terms, steady + warm * np.maximum(slow[:, None], longest))
    return terms, own
