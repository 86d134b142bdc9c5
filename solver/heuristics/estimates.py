"""Cheap lower bounds of the step time of a split, so that hopeless ones are not simulated."""

import numpy as np

from formulations.costs.plan_costs import PlanCosts
from formulations.schedules import SCHEDULES
from solver.heuristics.stages import OrderStages, Split
from solver.simulate import tail_ns


def compute_bound_ns(costs: OrderStages, split: Split) -> int:
    """Lower bound of the step time of a split, transfers and everything after them left out.

    The work of a stage, for any schedule. Where backwards are whole also: stage i of replica r
    starts no earlier than the forwards of one micro-batch on the stages before it, then works on m
    micro-batches, and its last backward is followed by that micro-batch's backwards on the stages
    before it: their sum is the longest path at least.
    """
    times = costs.replica_times_ns(split)
    whole = not SCHEDULES[costs.tables.shape.schedule].splits_backward
    before = (np.cumsum(times, axis=0) - times) * whole
    return int((before + times * np.array(costs.micro_batches)).max())


def pipeline_bound_ns(costs: PlanCosts) -> int:
    """Lower bound of the step time of a plan: as `compute_bound_ns`, with all other costs.

    The work of a device, for any schedule. With one chunk each, and backwards whole: the last
    backward of stage k ends at end_k >= lead_k + m t_k, with lead_k the forwards and transfers of
    one micro-batch before stage k and t_k its forward + backward; and end_k >= end_{k+1} +
    transfer + b_k, as the micro-batch that stage k+1 ends with comes to stage k after that. The
    tail grows with every end.
    """
    work = costs.forward_ns + costs.backward_ns
    end = work * np.array(costs.micro_batches)
    shape = costs.shape
    if shape.vpp > 1 or SCHEDULES[shape.schedule].splits_backward:
        devices = end.reshape(shape.vpp, shape.pp, -1).sum(axis=0)
        return int(tail_ns(costs, devices.max(axis=1)).max())
    step = costs.forward_ns[:-1] + costs.send_ns
    end[1:] += np.cumsum(step, axis=0)
    for k in reversed(range(len(end) - 1)):
        arrival = end[k + 1] + costs.send_ns[k] + costs.backward_ns[k]
        np.maximum(end[k], arrival, out=end[k])
    return int(tail_ns(costs, end.max(axis=1)).max())
