"""The filling bound of a shape: the work of a step, and pipelines that fill and empty.

Proof. All replicas have m micro-batches. Look at stage i of p, with f, b and t = f + b for one of
them. In 1F1B, w = min(p - 1 - i, m - 1): a step of length T is at least the latency, sum of all t
of the replica, plus (m - 1) t - w min(f, b); in GPipe the same with w = 0. See `pipeline`, (1).

A layer spends a share of its t in the forward pass, and the rest in the backward pass. With x the
largest share of the forward pass of any layer on any group used, y of the backward pass, f <= x t
and b <= y t hold for all sums of layers, so min(f, b) <= min(x, y) t, and

    T >= latency + c_i t,    c_i = m - 1 - min(x, y) w.

Give node group j a weight v_j >= 0, and replica r the load sum over its stages of v / c_i, v of the
group under stage i. If the mean load is at most 1, some replica's is. Its loads weigh its stages
with 1 at most in all, so T >= latency + sum of v t >= sum over stages of (1 + v) t
>= sum over layers of min_j (1 + v_j) t_j, whatever runs where.

The mean load is that of all slots over dp. There are dp slots for each stage, and slots of the same
weights load more at smaller c_i, that is at earlier stages. Hence the load is at most that of the
groups one after the other, largest weight first.

Any weights are valid. These would give all layers the same (1 + v_j) t_j on every group, were they
alike, and load 1; groups so slow that they would need v < 0 have v = 0. Fractions throughout.
"""

from fractions import Fraction
from functools import cached_property

from formulations.plan import Shape
from solver.verify.bounds import Prover


class FillingBound:
    """Works of one shape; `used`: node groups, the fastest first."""

    def __init__(self, prover: Prover, shape: Shape) -> None:
        self.prover, self.shape = prover, shape
        instance = prover.instance
        total = instance.workload.global_batch // shape.micro_batch
        even = instance.search.micro_batches == "even" or shape.dp == 1
        self.micro_batches = total // shape.dp if even else None
        times = prover.times(shape.tp, shape.micro_batch, shape.recompute)
        layers = range(len(times.forward_ns))
        self.forward = {
            j: [int(times.forward_ns[x, j]) for x in layers]
            for j, nodes in enumerate(shape.nodes_used)
            if nodes
        }
        self.work = {
            j: [f + int(times.backward_ns[x, j]) for x, f in enumerate(row)]
            for j, row in self.forward.items()
        }
        self.used = sorted(self.work, key=lambda j: sum(self.work[j]))

    @cached_property
    def overlap(self) -> Fraction:
        """min(x, y)."""
        shares = [
            Fraction(f, t)
            for j in self.used
            for f, t in zip(self.forward[j], self.work[j], strict=True)
            if t
        ]
        return min(max(shares), 1 - min(shares))

    def _capacities(self, m: int) -> list[Fraction]:
        """c_i of every stage."""
        shape = self.shape
        held = 0 if shape.schedule == "gpipe" else m - 1
        return [m - 1 - self.overlap * min(shape.pp - 1 - i, held) for i in range(shape.pp)]

    def _loads(self, capacities: list[Fraction]) -> dict[int, Fraction]:
        """Load of weight 1 on each group, if the groups take the stages one after the other."""
        groups, shape = self.prover.instance.cluster.groups, self.shape
        loads, first = {}, 0
        for j in self.used:
            stop = first + shape.nodes_used[j] * (groups[j].gpus_per_node // shape.tp)
            slots = [
                (min(stop, (i + 1) * shape.dp) - max(first, i * shape.dp)) / capacities[i]
                for i in range(first // shape.dp, -(-stop // shape.dp))
            ]
            loads[j] = sum(slots, Fraction(0)) / shape.dp
            first = stop
        return loads

    def _weights(self, m: int) -> dict[int, Fraction]:
        capacities = self._capacities(m)
        weights = dict.fromkeys(self.used, Fraction(0))
        if min(capacities) <= 0:
            return weights
        loads = self._loads(capacities)
        whole = {j: sum(self.work[j]) for j in self.used}
        for fast in range(len(self.used), 0, -1):
            some = self.used[:fast]
            level = (1 + sum(loads[j] for j in some)) / sum(
                (loads[j] / whole[j] for j in some), Fraction(0)
            )
            if level >= whole[some[-1]]:
                return weights | {j: level / whole[j] - 1 for j in some}
        return weights

    def bound_ns(self) -> int:
        """No plan of the shape has a shorter step; 0 if replicas may have different shares."""
        if self.micro_batches is None:
            return 0
        weights = self._weights(self.micro_batches)
        layers = range(len(self.work[self.used[0]]))
        whole = sum(min((1 + weights[j]) * self.work[j][x] for j in self.used) for x in layers)
        return int(whole)
