"""The work and filling bound of configurations in which every stage has degrees of its own.

Proof. All replicas are alike. With t_k the forward and backward of a micro-batch on stage k, at
least as if nothing more were recomputed than may be, a step takes at least the sum of all t_k and
c_k t_k more, for any k: c_k is m - 1 less what a latency path of stage k misses, see
`closed_forms`. Let c be the least of them. Take any weights v_j >= 0 of the node groups. Stages
fill the nodes, so with v_k that of the group under stage k and w_k GPUs for each of dp replicas,
the sum of dp w_k v_k over the stages is V, that of v_j over all GPUs of the nodes used. A mean of
bounds with weights dp w_k v_k / V is a bound:

    T >= sum_k t_k (1 + c u_k) >= sum_l min_x t_lx (1 + c u_x), u = dp w v / V

over the layers l and the places x, a node group and degrees, that a stage may have: the others have
w GPUs at least for each replica, so w_x <= G / dp - (p - 1) w with G GPUs. The same holds for
p weights u = 1 / p, and for (1 - a) V-weights and a / p with any a that leaves no place a negative
one. With a below 0 wide places gain nothing: t falls as 1 / w, and at a / p = -1 / c the weighted
term as well grows by what the sum of all t_k loses.

Besides there are the transfers of one micro-batch, both ways, and tied embeddings. N nodes in a row
have N - 1 borders, of which a stage on n nodes covers n - 1: so at least N / n - 1 boundaries of
stages lie on one, for the largest n. Each takes what the cheaper end does at the best place; others
may lie inside a node.

The same with m for c, and nothing for the latency, is the work of the GPUs. Any weights will do:
looked at are those by which GPUs of all groups do equally much, some in which one group counts more
or less, and these with 1 / p.
"""

from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from formulations.costs.stage_places import StagePlacer, stage_tables
from formulations.instance import Instance
from formulations.plan import Configuration, Place, num_gpus
from formulations.schedules.registry import SCHEDULES
from formulations.space.slots import stage_places
from formulations.units import ceil_div
from solver.graph.problem import Numbers

#: What one group's weight is multiplied by.
FACTORS = (0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.2, 1.45, 1.8, 2.5, 4.0)
#: Share of 1 / p in a mean; and of the most that may be taken away of it.
MEANS = (0.0, 0.3, 0.6, 0.9)
TAKEN = (1 / 3, 2 / 3, 1.0)
#: Relative noise of the floats, and more.
_NOISE = 1e-9


def _loads(by_gpus: Numbers, pp: int, kept: float) -> Numbers:
    """[K, C] weights u of places, from those by GPUs [K, C]; kept: c."""
    alike, least_load = 1 / pp, by_gpus.min(axis=1, keepdims=True)
    most_taken = np.minimum(
        least_load / np.maximum(alike - least_load, _NOISE), pp / max(kept, 1.0)
    )
    shares = [np.full_like(least_load, part) for part in MEANS] + [
        -part * most_taken for part in TAKEN
    ]
    loads: Numbers = np.concatenate([(1 - part) * by_gpus + part * alike for part in shares])
    return np.maximum(loads, 0)  # but for noise


class StageChoice:
    """Bounds for the configurations of one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._tables = lru_cache(maxsize=None)(partial(stage_tables, instance))
        self._times = lru_cache(maxsize=None)(self._times_of)
        self._weights = lru_cache(maxsize=None)(self._weights_of)
        self._once = lru_cache(maxsize=None)(self._once_of)
        self.counts = np.array([run.count for run in instance.workload.layer_runs])
        self.first = np.cumsum(self.counts) - self.counts

    def _times_of(
        self, config: Configuration, places: tuple[Place, ...]
    ) -> tuple[Numbers, Numbers]:
        """[U, C] ns of forward, and of both, of a layer of every run at every place."""
        tables = self._tables(config, places)
        forward, backward = tables.forward_ns[self.first], tables.backward_ns[self.first]
        return forward.astype(np.float64), (forward + backward).astype(np.float64)

    def _weights_of(self, config: Configuration, places: tuple[Place, ...]) -> Numbers:
        """[K, C] weights over their sum for all GPUs, times the GPUs of a slot."""
        _, work = self._times(config, places)
        group = np.array([j for j, _ in places])
        width = np.array([degrees.width for _, degrees in places])
        busy = self.counts @ (work * width)
        used, member = np.unique(group, return_inverse=True)
        speed = np.array([1 / max(1.0, busy[group == j].min()) for j in used])
        tried = np.ones((len(used), len(FACTORS), len(used)))
        for j in range(len(used)):
            tried[j, :, j] = FACTORS
        weights = tried.reshape(-1, len(used)) * speed
        gpus = [config.nodes_used[j] * self.instance.cluster.groups[j].gpus_per_node for j in used]
        shares: Numbers = (weights / (weights @ gpus)[:, None])[:, member] * width
        return shares

    def bound_ns(self, config: Configuration) -> int:
        """No plan of the configuration has a shorter step."""
        places = stage_places(self.instance, config)
        # Those that leave GPUs for the other stages.
        least_width = min(degrees.width for _, degrees in places)
        most_width = num_gpus(self.instance, config) // config.dp - (config.pp - 1) * least_width
        places = tuple(place for place in places if place[1].width <= most_width)
        key = config.model_copy(update={"dp": 1, "pp": 2, "zero": 0, "schedule": "1f1b"})
        forward, work = self._times(key, places)
        m = self.instance.workload.global_batch // config.micro_batch // config.dp
        kept = self._left(config, m, forward, work)
        loads = _loads(config.dp * self._weights(key, places), config.pp, kept)[:, None]
        busy = (m * work * loads).min(axis=2) @ self.counts
        filled = (work * (1 + kept * loads)).min(axis=2) @ self.counts
        crossing, far_ns, near_ns, tied_ns = self._once(key, places, config.dp)
        transfers_ns = crossing * far_ns + max(0, config.pp - 1 - crossing) * near_ns
        once_ns = 2 * transfers_ns + tied_ns
        return int(max(busy.max(), filled.max() + once_ns) * (1 - _NOISE))

    def _once_of(
        self, config: Configuration, places: tuple[Place, ...], dp: int
    ) -> tuple[int, int, int, int]:
        """Messages that cross nodes, least such message and least of all, tied embeddings; ns.

        For `dp` replicas.
        """
        tables, each = self._tables(config, places), range(len(places))
        placer = StagePlacer(replace(tables, config=tables.config.but(dp=dp)))
        nodes = sum(config.nodes_used)
        crossing = ceil_div(nodes, max(map(placer.num_nodes, each))) - 1
        far, near = (min(min(placer.send_ns(x, x, b)) for x in each) for b in (False, True))
        tied = min(placer.embedding_ns(x, nodes == 1) for x in each)
        return crossing, far, min(far, near), tied

    def _left(self, config: Configuration, m: int, forward: Numbers, work: Numbers) -> float:
        """C, see the module; 0 if it is negative."""
        share = np.where(work > 0, forward / np.maximum(work, 1), 0)
        none = np.zeros_like(share)
        phi = share.max(), np.where(work > 0, 1 - share, none).max()  # largest shares
        stage = np.arange(config.pp)
        same = np.ones_like(stage)
        paths = SCHEDULES[config.schedule].missed(config.pp * same, stage, m * same, same)
        kept = [m - 1 - phi[0] * path.forward - phi[1] * path.backward for path in paths]
        return max(0.0, float(np.max(kept, axis=0).min()))
