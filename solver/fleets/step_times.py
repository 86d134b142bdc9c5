"""The step of one pipeline for every number of micro-batches at once, equal to the simulator's.

With 1F1B the operations up to the last forward do not depend on how many micro-batches follow, so
one walk serves all numbers; only the drain, the last p - 1 - k backwards of stage k, has to be done
for each, and there all numbers are one array.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from formulations.costs.template_costs import TemplateCosts, exchange_times_ns, template_costs
from formulations.fleet import Design
from formulations.instance import Instance
from formulations.pipelines import PipelineKind
from formulations.schedules.registry import SCHEDULES
from solver.simulate import Array, pipeline_end_ns, pipeline_step_ns, pipeline_times


def step_times_ns(costs: TemplateCosts, max_micro_batches: int) -> list[int]:
    """Simulated step for 1, 2, .. `max_micro_batches` of them, as far as they fit into memory."""
    room = bisect_left(range(1, max_micro_batches + 1), True, key=lambda m: not costs.fits(m))
    few = min(room, costs.num_stages) if SCHEDULES[costs.schedule].turns else room
    steps = [pipeline_step_ns(costs, m) for m in range(1, few + 1)]
    if room > few:
        steps += pipeline_end_ns(costs, _last_backwards(costs, few + 1, room)).tolist()
    return steps


def _last_backwards(costs: TemplateCosts, first: int, max_micro_batches: int) -> Array:
    """[p, N] end of every stage's last backward with `first`, .. micro-batches; first > p.

    Stage k waits p - 1 - k = w forwards for its first backward. In the drain of m micro-batches
    its backward m - w + d follows the one before it on the stage, and comes from stage k + 1,
    where it is number d - 1 of the drain, or for d = 0 the last one before the drain.
    """
    times, p = pipeline_times(costs), costs.num_stages
    weights, transfers = times.weights[:, 0], times.transfers[:, 0]
    back = transfers[p - 1 : 2 * p - 2]
    unending = _unending_backwards(weights, transfers, max_micro_batches)
    counts = np.arange(first, max_micro_batches + 1)
    last = unending[p - 1, counts - 1]
    ends, onward = [last], list[Array]()
    for k in range(p - 2, -1, -1):
        w, drain = p - 1 - k, list[Array]()
        before = unending[k, counts - w - 1]
        for d in range(w):
            arriving = onward[d - 1] if d else unending[k + 1, counts - w]
            before = np.maximum(before, arriving + back[k]) + weights[p + k]
            drain.append(before)
        ends.append(before)
        onward = drain
    return np.stack(ends[::-1])


def _unending_backwards(weights: Array, transfers: Array, max_micro_batches: int) -> Array:
    """[p, max_micro_batches] end of every backward while forwards never run out.

    In round i stage k runs forward p - 1 - k + i and then backward i, the first p - 1 rounds
    (i < 0) forwards alone. All forwards of a round depend on the round before; backwards depend on
    those of the same round from the last stage up, a chain of maxima. What a round leaves decides
    all that follow: where it is that of an earlier one but for a shift, they repeat those since,
    shifted again and again (periodicity of max-plus recurrences, Baccelli, Cohen, Olsder and
    Quadrat 1992, chapter 3).
    """
    p = len(weights) // 2
    forward, backward = weights[:p], weights[p:]
    send, back = transfers[: p - 1], transfers[p - 1 : 2 * p - 2]
    # Time from the end of the last stage's backward to the end of this one's, without waiting
    up = np.concatenate([(backward[:-1] + back)[::-1].cumsum()[::-1], [0]])
    ends = np.zeros((p, max_micro_batches), dtype=np.int64)
    free = np.zeros(p, dtype=np.int64)
    sent = np.zeros(p, dtype=np.int64)
    seen = dict[bytes, int]()
    for i in range(1 - p, max_micro_batches):
        ready = free.copy()
        ready[1:] = np.maximum(ready[1:], sent[:-1] + send)
        ended = ready + forward
        running = np.arange(p) <= p - 1 + min(i, 0)
        ended = np.where(running, ended, 0)
        sent = free = ended
        if i >= 0:
            chained = np.maximum.accumulate((ended + backward - up)[::-1])[::-1]
            free = chained + up
            ends[:, i] = free
            first = seen.setdefault((np.stack([free, sent]) - free[0]).tobytes(), i)
            if first < i:
                turns, same = np.divmod(np.arange(i + 1, max_micro_batches) - first, i - first)
                shift = ends[:, i : i + 1] - ends[:, first : first + 1]
                ends[:, i + 1 :] = ends[:, first + same] + turns * shift
                break
    return ends


def kinds_of(instance: Instance, designs: Sequence[Design]) -> tuple[PipelineKind, ...]:
    """What every design is worth for up to all micro-batches of a step."""
    max_micro_batches = instance.workload.global_batch // designs[0].strategy.micro_batch
    groups = len(instance.cluster.groups)
    pipelines = min(sum(group.nodes for group in instance.cluster.groups), max_micro_batches)
    kinds = []
    for design in designs:
        costs = template_costs(instance, design.strategy, design.template)
        times_ns = tuple(step_times_ns(costs, max_micro_batches))
        exchanges_ns = exchange_times_ns(instance, design, pipelines)
        kinds.append(PipelineKind(design.template.counts(groups), times_ns, exchanges_ns))
    return tuple(kinds)
