"""Cheap lower estimates of a step time, so that hopeless candidates are not simulated."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from formulations.costs.compute import LayerTimes
from formulations.costs.plan_costs import PlanCosts
from formulations.instance import Instance
from formulations.plan import Shape
from solver.heuristics.stages import Split, StageCosts
from solver.simulate import tail_ns

Numbers = NDArray[np.float64]


def work_bound_ns(instance: Instance, shape: Shape, times: LayerTimes) -> int:
    """Lower bound of the step time of every plan of a shape: work over speed.

    Proof. With M micro-batches, x_lj passes of layer l on node group j, t_lj = forward +
    backward and n_j slots of group j: sum_j x_lj = M, and no slot works longer than the step
    time T, so sum_l t_lj x_lj <= n_j T. Weights w_j = 1 / sum_l t_lj make this
    T >= sum_l sum_j w_j t_lj x_lj / sum_j w_j n_j >= M sum_l min_j w_j t_lj / sum_j w_j n_j.
    """
    groups = instance.cluster.groups
    used = [j for j, count in enumerate(shape.nodes_used) if count]
    slots = [shape.nodes_used[j] * (groups[j].gpus_per_node // shape.tp) for j in used]
    work = (times.forward_ns + times.backward_ns)[:, used].astype(np.float64)
    weights = 1 / work.sum(axis=0)
    micro_batches = instance.workload.global_batch // shape.micro_batch
    bound = micro_batches * (work * weights).min(axis=1).sum() / (weights @ np.array(slots))
    return int(bound * (1 - 1e-9))


def filling_bound_ns(instance: Instance, shape: Shape, times: LayerTimes) -> int:
    """Lower bound of the step time of every plan of a shape: work, with pipelines that fill.

    0 where replicas may differ in their number of micro-batches.

    Proof. All replicas have m micro-batches. For stage i of replica r, with w_i = min(p-1-i, m-1)
    in 1F1B and 0 in GPipe, T >= latency_r + (m - 1) t_ri - w_i min(f_ri, b_ri), where latency_r
    is the sum of its t_rk = f_rk + b_rk; see `solver.enumeration.completion`. Let phi be the
    largest share of the forward pass, or, if that is less, of the backward pass, in the work of
    any layer on any group used. Then min(f_ri, b_ri) <= phi t_ri, and with
    c_i = m - 1 - phi w_i > 0: T >= latency_r + c_i t_ri.

    Take weights v_j >= 0 for the node groups such that the mean over replicas of
    sum_i v_(group of ri) / c_i is at most 1. Some replica has no more than the mean, so its
    v / c_i are weights of its stages that add up to 1 at most, and T >= latency_r +
    sum_i v t_ri = sum_i (1 + v) t_ri >= sum_l min_j (1 + v_j) t_lj. Each stage has dp slots. So,
    whatever the node order, the mean is largest when the groups of larger v take the first
    stages, whose 1 / c_i are largest.

    The weights here make (1 + v_j) sum_l t_lj equal for all groups but those too slow for any.
    """
    m, left_over = divmod(instance.workload.global_batch // shape.micro_batch, shape.dp)
    if left_over or (shape.dp > 1 and instance.search.micro_batches == "uneven"):
        return 0
    groups = instance.cluster.groups
    used = [j for j, count in enumerate(shape.nodes_used) if count]
    forward = times.forward_ns[:, used].astype(np.float64)
    work = forward + times.backward_ns[:, used]
    some = work > 0
    share = forward[some] / work[some]
    waiting = np.minimum(np.arange(shape.pp)[::-1], m - 1) * (shape.schedule != "gpipe")
    left = m - 1 - min(share.max(), 1 - share.min()) * waiting
    weights = np.zeros(len(used))
    if left.min() > 0:
        slots = [shape.nodes_used[j] * (groups[j].gpus_per_node // shape.tp) for j in used]
        weights = _filling_weights(work.sum(axis=0), np.array(slots) / shape.dp, 1 / left)
    return int(((1 + weights) * work).min(axis=1).sum() * (1 - 1e-9))


def _filling_weights(whole: Numbers, stages: Numbers, per_stage: Numbers) -> Numbers:
    """The weights v [J]. whole: [J] work of all layers. stages: [J] how many a group could fill.

    per_stage: [p] falling load of a stage per weight. The load of weights v_j = level / whole_j - 1
    of the fastest groups is 1 at the level chosen; with the first k of them it is largest
    among all k for which no weight is negative.
    """
    order = np.argsort(whole, kind="stable")
    ends = np.concatenate([[0.0], np.cumsum(stages[order])])
    loads = np.concatenate([[0.0], np.cumsum(per_stage)])
    load = np.diff(np.interp(ends, np.arange(len(loads)), loads))
    levels = (1 + np.cumsum(load)) / np.cumsum(load / whole[order])
    fast = int(np.flatnonzero(levels >= whole[order])[-1]) + 1
    weights = np.zeros(len(whole))
    weights[order[:fast]] = levels[fast - 1] / whole[order[:fast]] - 1
    above: Numbers = np.maximum(weights, 0)
    return above


def closed_form_ns(
    instance: Instance, shape: Shape, times: LayerTimes
) -> tuple[int, Literal["work", "filling"]]:
    """The larger of the work and the filling bound, and which one that is."""
    work = work_bound_ns(instance, shape, times)
    filling = filling_bound_ns(instance, shape, times)
    return (filling, "filling") if filling > work else (work, "work")


def compute_bound_ns(costs: StageCosts, split: Split) -> int:
    """Lower bound of the step time of a split, transfers and everything after them left out.

    Proof. Stage i of replica r starts no earlier than the forwards of one micro-batch on the
    stages before it, then works on m micro-batches, and its last backward is followed by that
    micro-batch's backwards on the stages before it: their sum is the longest path at least.
    """
    times = costs.replica_times_ns(split)
    before = np.cumsum(times, axis=0) - times
    return int((before + times * np.array(costs.micro_batches)).max())


def pipeline_bound_ns(costs: PlanCosts) -> int:
    """Lower bound of the step time of a plan: as `compute_bound_ns`, with all other costs.

    Proof. The last backward of stage k ends at end_k >= lead_k + m t_k, with lead_k the
    forwards and transfers of one micro-batch before stage k and t_k its forward + backward; and
    end_k >= end_{k+1} + transfer + b_k, as the micro-batch that stage k+1 ends with comes to
    stage k after that. The tail grows with every end.
    """
    work = costs.forward_ns + costs.backward_ns
    end = work * np.array(costs.micro_batches)
    step = costs.forward_ns[:-1] + costs.send_ns
    end[1:] += np.cumsum(step, axis=0)
    for k in reversed(range(len(end) - 1)):
        arrival = end[k + 1] + costs.send_ns[k] + costs.backward_ns[k]
        np.maximum(end[k], arrival, out=end[k])
    return int(tail_ns(costs, end.max(axis=1)).max())
