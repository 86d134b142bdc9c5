"""Work and filling of shapes whose stages have degrees of their own.

All replicas are alike, with m micro-batches each. For every stage i, one way through the step has
what a micro-batch takes on each stage, t, there and back, and c_i t_i besides: m - 1 less what the
way misses on stage i, see `filling`; and the GPUs of stage i are busy for m t_i. Let c be the least
c_i. Weigh stage i by its GPUs times v of their node group, over the same sum for all GPUs of the
nodes used: stages fill these, so the weights add up to 1. The weighted mean of those ways is as
long as a step at most, and so is that of the busy times:

    T >= sum of t_i (1 + c weight_i),    T >= sum of m t_i weight_i

where each layer counts no less than at the place that makes its term least. Any v >= 0 will do:
that by which a node group does its blocks in equal time, and that with one group raised or lowered.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from formulations.costs.stage_places import with_places
from formulations.plan import Shape
from formulations.schedules import SCHEDULES
from solver.verify.bounds import Prover
from solver.verify.findings import NOISE
from solver.verify.stage_orders import places_of

Numbers = NDArray[np.float64]

#: What v of one group is raised or lowered by.
SCALES = (0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.2, 1.45, 1.8, 2.5, 4.0)


class StageWork:
    """The bounds for all shapes of an instance."""

    def __init__(self, prover: Prover) -> None:
        self.prover, self.instance = prover, prover.instance
        self._known: dict[tuple[object, ...], tuple[Numbers, Numbers, list[Numbers]]] = {}

    def _terms(self, shape: Shape) -> tuple[Numbers, Numbers, list[Numbers]]:
        """[L, C] t of every layer by place, share of forward, and [C] weights of a replica."""
        key = shape.micro_batch, shape.recompute[0], shape.nodes_used
        if key not in self._known:
            places = places_of(self.prover.space, shape)
            wide, own = with_places(self.instance, shape, places)
            times = Prover(type(self.prover.space)(wide)).times(
                own.degrees, shape.micro_batch, shape.recompute[0]
            )
            whole = (times.forward_ns + times.backward_ns).astype(np.float64)
            share = np.where(whole > 0, times.forward_ns / np.maximum(whole, 1), 0.5)
            groups = [j for j, _ in places]
            width = np.array([degrees.width for _, degrees in places], dtype=np.float64)
            weights = list(self._weights(shape, groups, width, whole.sum(axis=0) * width))
            self._known[key] = whole, share, weights
        return self._known[key]

    def _weights(
        self, shape: Shape, groups: Sequence[int], width: Numbers, busy: Numbers
    ) -> Iterator[Numbers]:
        """[C] of one replica's GPUs at every place, for several v."""
        used = sorted(set(groups))
        gpus = {
            j: shape.nodes_used[j] * self.instance.cluster.groups[j].gpus_per_node for j in used
        }
        fastest = {j: min(t for t, i in zip(busy, groups, strict=True) if i == j) for j in used}
        for raised in used:
            for scale in SCALES:
                v = {j: (scale if j == raised else 1) / max(1.0, fastest[j]) for j in used}
                whole = sum(v[j] * gpus[j] for j in used)
                yield np.array([v[j] for j in groups]) * width / whole

    def bound_ns(self, shape: Shape) -> int:
        """No plan has a shorter step."""
        whole, share, weights = self._terms(shape)
        m = self.instance.workload.global_batch // shape.micro_batch // shape.dp
        left = self._left(shape, m, share)
        terms = (
            max(
                (whole * (1 + left * shape.dp * own)).min(axis=1).sum(),
                (whole * (m * shape.dp * own)).min(axis=1).sum(),
            )
            for own in weights
        )
        return int(max(terms) * (1 - 1000 * NOISE))

    def _left(self, shape: Shape, m: int, share: Numbers) -> float:
        """C, or 0."""
        least = []
        for k in range(shape.pp):
            columns = (np.array([one]) for one in (shape.pp, k, m, 1))
            ways = SCHEDULES[shape.schedule].missed(*columns)
            least.append(
                max(
                    m - 1 - share.max() * way.forward[0] - (1 - share.min()) * way.backward[0]
                    for way in ways
                )
            )
        return max(0.0, float(min(least)))
