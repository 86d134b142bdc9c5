"""The filling bound of a shape: the work of a step, and pipelines that fill and empty.

Proof. All replicas have m micro-batches; or, where these may be unlike, look at the replica with
the most, which has m or more: what follows only grows with them. Look at stage i of p, with f, b
and t = f + b for one of them. In 1F1B, w = min(p - 1 - i, m - 1): the last backward of the first
stage ends no earlier than the latency, sum of all t of the replica and its transfers, plus (m - 1)
t - w min(f, b); in GPipe the same with w = 0. See `pipeline`, (1). After it come tied embeddings
and the tail of that stage.

A layer spends a share of its t in the forward pass, and the rest in the backward pass. With x the
largest share of the forward pass of any layer on any group used, y of the backward pass, f <= x t
and b <= y t hold for all sums of layers, so min(f, b) <= min(x, y) t, and a step of length T has

    T >= once + latency + c_i t_i + tail_0,    c_i = m - 1 - min(x, y) w.

Give node group j a weight v_j >= 0, and on the first stage v_j - d >= 0, and replica r the load
sum over its stages of v / c_i, v of the group under stage i, less d / c_0. If its load is at most
1, its weights over c_i are at most 1 in all, so T >= once + latency + sum of v t - d t_0 + tail_0,
and layer by layer that is at least the least (1 + v_j) t_j, or (1 + v_j - d) t_j + tail_j on the
first stage.

It remains to find a replica of load 1 or less. There are dp slots for each stage, and slots load
more at smaller c_i, that is at earlier stages: the mean load is at most that of the groups one
after the other, largest weight first, less d / c_0. Some replica has no more. Of two groups used,
some replica has no more stages on the faster one than its slots over dp, rounded down, and its load
is at most that of so many stages of the one, then the other; if none, only the other counts. Where
micro-batches are unlike the replica is given: it has no more stages on the fastest groups than any
has, see `Chain.most_on`, and its load is at most that of so many of each, larger weights first.

Any weights and d are valid. These would give all layers the same (1 + v_j) t_j on every group, were
they alike; groups so slow that they would need v < 0 have v = 0. d is 0; or as large as leaves no
weight negative, and no block of the longest run of equal ones better off on the first stage.
Fractions throughout.
"""

from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil

from solver.verify.chain import Chain

Weights = dict[int, Fraction]


class FillingBound:
    """Works of one shape."""

    def __init__(self, chain: Chain) -> None:
        self.chain, self.shape = chain, chain.shape

    @cached_property
    def stages(self) -> dict[int, Fraction]:
        """Stages of a replica on each group it may stand on, the fastest group first."""
        order, dp = self.chain.fastest_first, self.shape.dp
        if not self.chain.alike:
            ends = [self.chain.most_on(order[:k]) for k in range(len(order) + 1)]
            return {j: Fraction(b - a) for j, (a, b) in zip(order, pairwise(ends), strict=True)}
        stages = {j: Fraction(self.chain.slots(j), dp) for j in order}
        if len(order) == 2:
            fast = self.chain.slots(order[0]) // dp
            stages = {order[0]: Fraction(fast), order[1]: Fraction(self.shape.pp - fast)}
        return {j: count for j, count in stages.items() if count}

    @cached_property
    def loads(self) -> dict[int, Fraction]:
        """Load of weight 1 on each group, if the groups take the stages one after the other."""
        loads, first = {}, Fraction(0)
        for j, count in self.stages.items():
            stop = first + count
            parts = [
                (min(stop, Fraction(i + 1)) - max(first, Fraction(i))) / c
                for i, c in enumerate(self.chain.capacities)
                if first < i + 1 and i < stop
            ]
            loads[j] = sum(parts, Fraction(0))
            first = stop
        return loads

    def _weights(self, capacity: Fraction) -> Weights:
        """Weights that load the stages to this."""
        weights = dict.fromkeys(self.stages, Fraction(0))
        if min(self.chain.capacities) <= 0:
            return weights
        whole = {j: max(sum(self.chain.work[j]), 1) for j in self.stages}
        order = list(self.stages)
        for fast in range(len(order), 0, -1):
            some = order[:fast]
            spread = sum((self.loads[j] / whole[j] for j in some), Fraction(0))
            if not spread:
                break
            level = (capacity + sum(self.loads[j] for j in some)) / spread
            if level >= whole[some[-1]]:
                return weights | {j: level / whole[j] - 1 for j in some}
        return weights

    def _less(self, weights: Weights) -> Fraction:
        """D for these weights."""
        if self.shape.pp == 1:
            return Fraction(0)
        runs = self.chain.prover.instance.workload.layer_runs
        longest = max(range(len(runs)), key=lambda u: (runs[u].count * runs[u].layer.is_block, -u))
        x = sum(run.count for run in runs[:longest])
        ratios = [
            Fraction(self.chain.tail[j][x], max(self.chain.work[j][x], 1)) for j in self.stages
        ]
        return min(*ratios, *weights.values())

    def _sum(self, weights: Weights, less: Fraction) -> Fraction:
        """Least cost of all layers, one by one."""
        chain = self.chain
        whole = Fraction(0)
        for x in range(len(chain.is_block)):
            other = min((1 + v) * chain.work[j][x] for j, v in weights.items())
            zeroth = min(
                (1 + v - less) * chain.work[j][x] + chain.tail[j][x] for j, v in weights.items()
            )
            if self.shape.pp == 1 or x in chain.first:
                whole += zeroth
            else:
                whole += other if x in chain.later else min(zeroth, other)
        return whole

    def bound_ns(self) -> int:
        """No plan of the shape has a shorter step."""
        weights = self._weights(Fraction(1))
        plain, less = self._sum(weights, Fraction(0)), self._less(weights)
        if less:
            more = self._weights(1 + less / self.chain.capacities[0])
            plain = max(plain, self._sum(more, less))
        return ceil(plain + self.chain.once)
