"""The work bound of every plan of a shape, or the time in which a pipeline fills and empties.

Terms are those of `work`.

Filling, if all replicas have m micro-batches and devices one chunk. (If these may be unlike, look
at the replica with the most: it has M / dp or more, m that rounded up, and what follows only grows
with them; see Unlike.) By the latency paths of stage i of replica r
(`formulations.schedules.operations.Missed`), the last backward of stage 0 ends no earlier than
latency_r + (m - 1) t_ri less what the path misses of stage i. latency_r is the sum of its t_rk, but
for weight gradients split off, and of its transfers, both ways. Then follow the tail of stage 0,
and the all-reduce of tied embeddings. Let phi of each kind of operation be its largest share in the
work of any layer on any group used. Then stage i misses at most the sum over kinds of phi times
their number, times t_ri; with c_i = m - 1 less that sum, for the better path, if c_i > 0: T >=
latency_r + c_i t_ri + s_r0 + a, s_r0 that of stage 0.

Several chunks: micro-batch 0 goes through all of them, back to the last chunk of device i, which
then does what is left, and its last backward goes up to device 0. Before that first backward are u
forwards of some chunk at most, so the same holds with c_i = m - phi u of forwards, and a latency of
all forwards, their transfers, and a block's backward on each other device.

Take weights v_j >= 0 for the node groups, and v_j - d_j >= 0 on stage 0, such that the mean over
replicas of the sum over stages of v / c_i, less d / c_0 on stage 0, is at most 1. Some replica has
no more than the mean, so these are weights of its stages that add up to 1 at most, and

    T >= latency_r + sum_i v t_ri - d t_r0 + s_r0 + a = sum_i (1 + v) t_ri - d t_r0 + s_r0 + a
      >= transfers + a + sum_l min_j of (1 + v_j - d_j) t_lj + s_lj on stage 0, (1 + v_j) t_lj else.

The first block and what is before it are on stage 0, the last block and what follows on another
one; between them the lesser counts. Each stage has dp slots. So, whatever the node order, the mean
of v / c_i is largest when the groups of larger v take the stages whose 1 / c_i are largest, and
from it goes the least d_j / c_0 at least: v may be larger by what stage 0 does with less.

Unlike. The replica with the most micro-batches stands where it stands: instead of the mean replica
count its own stages. A node of c slots in a row has c / dp of any replica's stages, rounded up or
down; so on the k fastest groups it has no more than their nodes have rounded up, nor than the
others leave it of p, rounded down. Its load is the largest if it has so many, and v grows with the
speed.

The weights here make (1 + v_j) sum_l t_lj equal for all groups but those too slow for any. d is 0,
or the same for all groups: the most that leaves no v_j - d_j negative and a block of the longest
run no cheaper on stage 0 than elsewhere.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from formulations.costs.compute import LayerTimes
from formulations.instance import Instance
from formulations.plan import Shape
from solver.bounds.group_loads import GroupLoads
from solver.bounds.order_free_costs import Array, Numbers, ShapeColumns, send_ns, tied_ns
from solver.bounds.stage_factors import StageFactors
from solver.bounds.work import WorkBounds, whole_ns


class ClosedForm(NamedTuple):
    """Lower bound of the step time of every plan of a shape, and which one that is."""

    bound_ns: int
    proof: Literal["work", "filling"]


def closed_forms(
    instance: Instance, shapes: Sequence[Shape], times: Sequence[LayerTimes]
) -> list[ClosedForm]:
    """The larger of the work and the filling bound of shapes with these layer times."""
    if not shapes:
        return []
    bounds = WorkBounds(ShapeColumns(instance, shapes), times)
    return [
        ClosedForm(filling, "filling") if filling > work else ClosedForm(work, "work")
        for work, filling in zip(
            bounds.work_ns().tolist(), Filling(bounds).filling_ns().tolist(), strict=True
        )
    ]


class Filling:
    """The filling bounds of the same shapes."""

    def __init__(self, bounds: WorkBounds) -> None:
        self.bounds, self.columns = bounds, bounds.columns
        self.stages = StageFactors(bounds)
        self.loads = GroupLoads(bounds, self.stages.per_weight)

    @cached_property
    def passed(self) -> Numbers:
        """[N, U, J] ns of a layer that count in the latency."""
        chunked = self.stages.chunked[:, None, None]
        return np.where(chunked, self.bounds.kinds[0], self.bounds.work - self.stages.weight)

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """[U] layers of a run that are surely on stage 0; surely not, if there are more."""
        instance = self.columns.instance
        layers = instance.workload.layers
        blocks = [i for i, layer in enumerate(layers) if layer.is_block]
        if instance.search.embedding_only_stages or not blocks:
            blocks = [0, len(layers) - 1]
        ends = np.cumsum(self.bounds.counts)
        starts = ends - self.bounds.counts
        first = np.clip(blocks[0] + 1 - starts, 0, self.bounds.counts)
        later = np.clip(ends - max(blocks[-1], blocks[0] + 1), 0, self.bounds.counts)
        return first, later

    def _filled(self, weights: Numbers, less: Numbers) -> Numbers:
        """[N] the filling bound of these weights [N, J], on stage 0 less by [N]."""
        first, later = self.places
        among = self.loads.among
        single = (self.columns.pp == 1)[:, None]
        usual = weights[:, None, :] * self.bounds.work + self.passed
        other = self.bounds.least(usual, among)
        zeroth = self.bounds.least(
            usual - less[:, None, None] * self.bounds.work + self.bounds.tails.layers, among
        )
        between = (
            zeroth * first
            + other * later
            + np.minimum(zeroth, other) * (self.bounds.counts - first - later)
        )
        whole: Numbers = np.where(single, zeroth * self.bounds.counts, between).sum(axis=1)
        return whole

    @cached_property
    def after(self) -> Numbers:
        """[N] start of the tail, tied embeddings, transfers of one micro-batch both ways.

        With several chunks there and no more, and a block's backward on all devices but one.
        """
        ways = np.where(self.stages.chunked, 1, 2)
        after: Numbers = (
            self.bounds.tails.start + tied_ns(self.columns) + ways * send_ns(self.columns)
        )
        if self.stages.chunked.any() and not self.columns.instance.search.embedding_only_stages:
            blocks = [run.layer.is_block for run in self.columns.instance.workload.layer_runs]
            least = self.bounds.least(self.bounds.kinds[1], self.columns.used)[:, blocks].min(
                axis=1
            )
            after = after + self.stages.chunked * (self.columns.pp - 1) * least
        return after

    def filling_ns(self) -> Array:
        """[N] the filling bound; 0 where devices have several chunks."""
        columns, among = self.columns, self.loads.among
        one = np.ones(len(columns.shapes))
        weights = self.loads.weights(one)
        blocks = [layers.layer.is_block for layers in columns.instance.workload.layer_runs]
        run = int((self.bounds.counts * blocks).argmax())
        ratios = self.bounds.tails.layers[:, run] / np.maximum(self.bounds.work[:, run], 1)
        ratio, room = (np.where(among, x, np.inf).min(axis=1) for x in (ratios, weights))
        less = np.where(columns.pp > 1, np.minimum(ratio, room), 0.0)
        first = np.where(self.stages.per_weight[:, 0] > 0, self.stages.factors[:, 0], np.inf)
        more = self.loads.weights(one + less / first)
        bound = np.maximum(self._filled(weights, 0 * one), self._filled(more, less))
        return whole_ns(bound + self.after)
