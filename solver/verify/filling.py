"""Lower bounds from the time in which a pipeline fills and empties: see `closed_forms` for terms.

Shapes with several chunks per device have the work bound alone. All replicas have m micro-batches;
or, where these may be unlike, look at the replica with the most, which has m = M / dp, rounded up,
or more: what follows only grows with them. By the latency paths that a schedule states of stage i
(`Missed`), the last backward of the first stage ends no earlier than the latency, the sum of all t
of the replica, but for weight gradients split off, and its transfers, plus (m - 1) t_i less what
the path misses of stage i; then come tied embeddings and the tail of that stage. A kind of
operation has at most some share of t in any layer on any group used, so with c_i m - 1 less the sum
over kinds of that share times the number missed, for the better path,

    T >= once + latency + c_i t_i + tail_0.

Give node group j a weight v_j >= 0, and on the first stage v_j - d >= 0, and replica r the load
sum over its stages of v / c_i, v of the group under stage i, less d / c_0. If its load is at most
1, its weights over c_i are at most 1 in all, so T >= once + latency + sum of v t - d t_0 + tail_0,
and layer by layer that is at least the least (1 + v_j) t_j, or (1 + v_j - d) t_j + tail_j on the
first stage, less weight gradients split off. It remains to find a replica of load 1 or less. There
are dp slots for each stage, and slots load more at smaller c_i: the mean load is at most that of
the groups one after the other over the stages, smallest c_i and largest weight first, less d / c_0.
Some replica has no more. Of two groups used, some replica has no more stages on the faster one than
its slots over dp, rounded down, and its load is at most that of so many stages of the one, then the
other; if none, only the other counts. Where micro-batches are unlike the replica is given. A node
of c slots in a row has c / dp of its stages, rounded up or down: so it has no more on the k fastest
groups than their nodes have rounded up, nor than the others leave it of pp, rounded down. Weights
fall with the speed, so its load is at most that of so many on each, one after the other. Any v and
d are valid. These v would give all layers the same (1 + v_j) t_j on every group, were they alike;
groups so slow that they would need v < 0 have v = 0. d is 0; or as large as leaves no weight
negative, and no block of the longest run of equal ones better off on the first stage.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from formulations.plan import Shape
from solver.verify.bounds import Prover
from solver.verify.closed_forms import Array, ClosedForms, Numbers, whole_ns
from solver.verify.stage_loads import LEAST_SHARE, StageLoads


def bounds_ns(prover: Prover, shapes: Sequence[Shape]) -> Array:
    """[N] no plan of a shape has a shorter step: by work or filling."""
    if not shapes:
        return np.zeros(0, dtype=np.int64)
    forms = ClosedForms(prover, shapes)
    filling_ns = np.where(forms.column("vpp") > 1, 0, Filling(forms).filling_ns())
    return np.maximum(forms.work_ns(), filling_ns)


class Filling:
    """The filling bounds of some shapes."""

    def __init__(self, forms: ClosedForms) -> None:
        self.forms, self.loads = forms, StageLoads(forms)

    @cached_property
    def passed(self) -> Numbers:
        """[N, U, J] of one layer what the latency counts."""
        forward, backward, _ = self.forms.layers
        passed: Numbers = forward + backward
        return passed

    def _less(self, weights: Numbers) -> Numbers:
        """[N] d for these weights."""
        runs = self.forms.prover.instance.workload.layer_runs
        u = max(range(len(runs)), key=lambda u: (runs[u].count * runs[u].layer.is_block, -u))
        ratio = np.minimum(self.forms.tail[:, u] / np.maximum(self.forms.work[:, u], 1), weights)
        less = np.where(self.loads.counted, ratio, np.inf).min(axis=1)
        return np.where(self.forms.column("pp") == 1, 0.0, less)

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """[U] layers of a run that are surely on the first stage, and surely on the last."""
        is_block = [layer.is_block for layer in self.forms.prover.layers]
        blocks = [x for x, one in enumerate(is_block) if one]
        if self.forms.prover.instance.search.embedding_only_stages or not blocks:
            blocks = [0, len(is_block) - 1]
        run = np.repeat(np.arange(len(self.forms.counts)), self.forms.counts)
        last = max(blocks[-1], blocks[0] + 1)
        first = np.bincount(run[: blocks[0] + 1], minlength=len(self.forms.counts))
        return first, np.bincount(run[last:], minlength=len(self.forms.counts))

    def _sum(self, weights: Numbers, less: Numbers) -> Numbers:
        """[N] least cost of all layers, one by one."""
        other = self.forms.least(
            weights[:, None] * self.forms.work + self.passed, self.loads.counted
        )
        lighter = (weights - less[:, None])[:, None]
        zeroth = self.forms.least(
            lighter * self.forms.work + self.passed + self.forms.tail, self.loads.counted
        )
        first, later = self.places
        free = self.forms.counts - first - later
        several = first * zeroth + later * other + free * np.minimum(zeroth, other)
        single = (self.forms.column("pp") == 1)[:, None]
        whole: Numbers = np.where(single, self.forms.counts * zeroth, several).sum(axis=1)
        return whole

    def filling_ns(self) -> Array:
        """[N] the filling bound."""
        plain = self.loads.weights(np.ones(len(self.forms.shapes)))
        less = self._less(plain)
        c_0 = np.maximum(self.loads.c[:, 0], LEAST_SHARE)
        more = self.loads.weights(1 + less / c_0)
        bound = np.maximum(self._sum(plain, 0 * less), self._sum(more, less))
        return whole_ns(bound + self.forms.start + self.once)

    @property
    def once(self) -> Numbers:
        """[N] tied embeddings, transfers of one micro-batch."""
        each = [one.embedding_ns() + 2 * one.send_ns() for one in self.forms.costs]
        return np.array(each, dtype=np.float64)
