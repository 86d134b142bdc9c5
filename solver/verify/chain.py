"""What the closed-form proofs of one shape go by: layers, groups, times, tails and their places."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from formulations.plan import Shape
from formulations.units import ceil_div
from solver.verify.bounds import Prover
from solver.verify.least_costs import LeastCosts


@dataclass(frozen=True)
class Chain:
    """Times of one shape in whole ns, by node group j used and layer x.

    forward, work, tail: [j][x] forward, forward + backward, and what follows the last backward.
    start: once after it. once: that, tied embeddings, transfers of a micro-batch both ways.
    """

    prover: Prover
    shape: Shape

    @cached_property
    def least(self) -> LeastCosts:
        """What does not depend on the node order."""
        return LeastCosts(self.prover.instance, self.shape)

    @cached_property
    def _tails(self) -> tuple[dict[int, list[int]], int]:
        layers, start = self.least.tail_ns()
        return dict(zip(self.least.used, layers.T.tolist(), strict=True)), start

    @property
    def tail(self) -> dict[int, list[int]]:
        """[j][x]."""
        return self._tails[0]

    @property
    def start(self) -> int:
        """Start-up of sync and gather."""
        return self._tails[1]

    @cached_property
    def once(self) -> int:
        """All that is added to a step whatever the split."""
        return self.start + self.least.embedding_ns() + 2 * self.least.send_ns()

    @cached_property
    def _columns(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        shape = self.shape
        times = self.prover.times(shape.tp, shape.micro_batch, shape.recompute)
        forward = {j: times.forward_ns[:, j].tolist() for j in self.least.used}
        whole = times.forward_ns + times.backward_ns
        return forward, {j: whole[:, j].tolist() for j in self.least.used}

    @property
    def forward(self) -> dict[int, list[int]]:
        """[j][x]."""
        return self._columns[0]

    @property
    def work(self) -> dict[int, list[int]]:
        """[j][x]."""
        return self._columns[1]

    @cached_property
    def fastest_first(self) -> list[int]:
        """Groups used, by the work of all layers."""
        return sorted(self.least.used, key=lambda j: sum(self.work[j]))

    def slots(self, group: int) -> int:
        """Slots of all nodes used of a group."""
        size = self.prover.instance.cluster.groups[group].gpus_per_node
        return self.shape.nodes_used[group] * (size // self.shape.tp)

    @cached_property
    def total(self) -> int:
        """Micro-batches of a step."""
        return self.prover.instance.workload.global_batch // self.shape.micro_batch

    @cached_property
    def micro_batches(self) -> int:
        """Those of every replica, or where they may be unlike of that with the most, at least."""
        return ceil_div(self.total, self.shape.dp)

    @property
    def alike(self) -> bool:
        """Whether all replicas have as many micro-batches."""
        return self.prover.instance.search.micro_batches == "even"

    def most_on(self, groups: Sequence[int]) -> int:
        """Most stages on these of the groups used: of some replica, or if unlike of any.

        Proof: some replica has no more than the mean. A node of c slots in a row has c / dp of any
        replica's stages, rounded up or down; the groups not named have the latter at least.
        """
        dp, least = self.shape.dp, self.least
        if self.alike:
            return sum(map(self.slots, groups)) // dp
        nodes = list(zip(least.used, least.counts, least.slots, strict=True))
        others = sum(n * (c // dp) for j, n, c in nodes if j not in groups)
        inside = sum(n * ceil_div(c, dp) for j, n, c in nodes if j in groups)
        return min(inside, self.shape.pp - others)

    @cached_property
    def capacities(self) -> list[Fraction]:
        """[p] c_i of `filling`."""
        shape, m = self.shape, self.micro_batches
        shares = [
            Fraction(f, t)
            for j in self.least.used
            for f, t in zip(self.forward[j], self.work[j], strict=True)
            if t
        ]
        overlap = min(max(shares), 1 - min(shares)) if shares else Fraction(0)
        held = 0 if shape.schedule == "gpipe" else m - 1
        return [m - 1 - overlap * min(shape.pp - 1 - i, held) for i in range(shape.pp)]

    @cached_property
    def is_block(self) -> list[bool]:
        """[L]."""
        return [layer.is_block for layer in self.prover.layers]

    @cached_property
    def first(self) -> range:
        """Layers that are surely on the first stage."""
        blocks = [x for x, is_block in enumerate(self.is_block) if is_block]
        free = self.prover.instance.search.embedding_only_stages or not blocks
        return range(1 if free else blocks[0] + 1)

    @cached_property
    def later(self) -> range:
        """Layers that are surely on the last stage, and on no other if there are several."""
        blocks = [x for x, is_block in enumerate(self.is_block) if is_block]
        free = self.prover.instance.search.embedding_only_stages or not blocks
        last = len(self.is_block) - 1
        return range(max(last if free else blocks[-1], self.first.stop), last + 1)
