"""The work and filling bound of shapes in which every stage has degrees of its own.

Proof. All replicas are alike. With t_k the forward and backward of a micro-batch on stage k, at
least as if nothing more were recomputed than may be, a step takes at least the sum of all t_k and
c_k t_k more, for any k: c_k is m - 1 less what a latency path of stage k misses, see
`work_and_filling`. Let c be the least of them. Take any weights v_j >= 0 of the node groups. Stages
fill the nodes, so with v_k that of the group under stage k and w_k GPUs for each of dp replicas,
the sum of dp w_k v_k over the stages is V, that of v_j over all GPUs of the nodes used. A mean of
bounds with weights dp w_k v_k / V is a bound:

    T >= sum_k t_k (1 + c dp w_k v_k / V) >= sum_l min_x t_lx (1 + c dp w_x v_x / V)

over the layers l and the places x, a node group and degrees, that a stage may have. The same with
m for c, and nothing for the latency, is the work of the GPUs. Any weights will do: looked at are
those by which GPUs of all groups do equally much, and some in which one group counts more or less.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from formulations.costs.compute import TimeColumns
from formulations.costs.stage_places import with_places
from formulations.instance import Instance
from formulations.plan import Shape
from formulations.schedules import SCHEDULES
from formulations.slot_degrees import Place, stage_places

Numbers = NDArray[np.float64]

#: What one group's weight is multiplied by.
FACTORS = (0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.2, 1.45, 1.8, 2.5, 4.0)
#: Relative noise of the floats, and more.
_NOISE = 1e-9


class StageChoice:
    """Bounds for the shapes of one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._columns = lru_cache(maxsize=None)(self._times)
        self._weights = lru_cache(maxsize=None)(self._candidates)
        self.counts = np.array([run.count for run in instance.workload.layer_runs])
        self.first = np.cumsum(self.counts) - self.counts

    def _times(self, shape: Shape, places: tuple[Place, ...]) -> tuple[Numbers, Numbers]:
        """[U, C] ns of forward, and of both, of a layer of every run at every place."""
        wide, own = with_places(self.instance, shape, places)
        times = TimeColumns(wide).times(own.degrees, shape.micro_batch, shape.recompute[0])
        forward = times.forward_ns[self.first].astype(np.float64)
        return forward, forward + times.backward_ns[self.first]

    def _candidates(self, shape: Shape, places: tuple[Place, ...]) -> Numbers:
        """[K, C] weights over their sum for all GPUs, times the GPUs of a slot."""
        _, work = self._columns(shape, places)
        group = np.array([j for j, _ in places])
        width = np.array([degrees.width for _, degrees in places])
        busy = self.counts @ (work * width)
        used, member = np.unique(group, return_inverse=True)
        speed = np.array([1 / max(1.0, busy[group == j].min()) for j in used])
        tried = np.ones((len(used), len(FACTORS), len(used)))
        for j in range(len(used)):
            tried[j, :, j] = FACTORS
        weights = tried.reshape(-1, len(used)) * speed
        gpus = [shape.nodes_used[j] * self.instance.cluster.groups[j].gpus_per_node for j in used]
        shares: Numbers = (weights / (weights @ gpus)[:, None])[:, member] * width
        return shares

    def bound_ns(self, shape: Shape) -> int:
        """No plan of the shape has a shorter step."""
        places = stage_places(self.instance, shape)
        key = shape.model_copy(update={"dp": 1, "pp": 2, "zero": 0, "schedule": "1f1b"})
        forward, work = self._columns(key, places)
        m = self.instance.workload.global_batch // shape.micro_batch // shape.dp
        loads = shape.dp * self._weights(key, places)[:, None, :]
        busy = (m * work * loads).min(axis=2) @ self.counts
        left = self._left(shape, m, forward, work)
        filled = (work * (1 + left * loads)).min(axis=2) @ self.counts
        return int(max(busy.max(), filled.max()) * (1 - _NOISE))

    def _left(self, shape: Shape, m: int, forward: Numbers, work: Numbers) -> float:
        """C, see the module; 0 if it is negative."""
        share = np.where(work > 0, forward / np.maximum(work, 1), 0)
        none = np.zeros_like(share)
        most = share.max(), (np.where(work > 0, 1 - share, none)).max()
        stage = np.arange(shape.pp)
        same = np.ones_like(stage)
        paths = SCHEDULES[shape.schedule].missed(shape.pp * same, stage, m * same, same)
        kept = [m - 1 - most[0] * own.forward - most[1] * own.backward for own in paths]
        return max(0.0, float(np.max(kept, axis=0).min()))
