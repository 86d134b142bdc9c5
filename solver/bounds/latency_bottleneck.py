"""Bounds on what the rest of a split must still cost: shortest paths of least sum and maximum.

Paths: the latency paths of any schedule (`formulations.schedules.registry.Missed`), the work of
one device, and rounds where a schedule states turns. Edges through which no path is below a cutoff
go, as by reduced costs.

Latency plus bottleneck. For every stage i of a lane, with m micro-batches, w = min(p-1-i, m-1)
in 1F1B and w = 0 in GPipe, and latency = all f_k + b_k + all transfers, both ways:

    end of the last backward of stage 0 >= latency + (m - 1)(f_i + b_i) - w min(f_i, b_i).

Proof. 1F1B: stage i runs B(0) after w + 1 forwards if w = p-1-i. Path one: micro-batch 0 down to
the last stage and back to B_i(0); from there stage i has m - 1 backwards and m - 1 - w forwards
left; then the last backward goes up to stage 0. Its length is latency + (m-1)(f_i+b_i) - w f_i.
Path two: stage i from F_i(0) to F_i(m-1), which includes all m forwards and the m - 1 - w
backwards before F_i(m-1), then micro-batch m-1 down, back and up: latency + (m-1)(f_i+b_i)
- w b_i. If m - 1 < p-1-i, all forwards of stage i come first and w = m - 1 gives the same two
paths. GPipe: micro-batch 0 down to i, all forwards of i, the last down and back to the first
backward of i, all backwards of i, the last up: latency + (m-1)(f_i+b_i).
With blocking sends the transfer a stage sends is part of its f_i or b_i in the bottleneck term,
and is counted once in the latency, as without.
The step ends no earlier than stage 0's tail after that.

Rounds. In 1F1B also, with q = p - i <= m - 1 and C = all f_k + b_k of the stages i.. and the
transfers between them, both ways: for every a with 1 <= a and a q <= m - 1

    end of the last backward of stage 0 >= latency + a C + (m - 1 - a q)(f_i + b_i).

Proof. The last stage runs B(x) right after F(x), and stage i runs F_i(x + q) right after B_i(x),
as it has q - 1 warm-ups, and B_i(x + 1) after that. So from B_i(x), as long as there is a
F_i(x + q), one path leads through that to B_i(x + 1), of length f_i + b_i, and another down to
the last stage and back to B_i(x + q): a round, of length C. The path: micro-batch 0 down and back
to B_i(0), m - 1 - a q times the first, a times the second, which ends with B_i(m - 1), and the last
micro-batch up. It is longest for the least or the largest a. A stage that works as long as the
others waits for transfers in its rounds; a faster one has a slow stage after it.

Costs of an edge hold for every plan that uses it: of transfers
that the edge does not decide (with blocking sends, that to the next stage) the least possible
counts.
"""

from collections.abc import Sequence

import numpy as np

from formulations.schedules.registry import SCHEDULES, Kind
from solver.graph.edges import Layers, shortest_path, so_far, taken, to_go
from solver.graph.problem import INFINITY, Array, Mask, SplitProblem


def latencies(layers: Layers) -> list[Array]:
    """Per stage [R, M] latency, with what the first does after its last backward.

    That is its tail, and with zero-bubble schedules one micro-batch's weight gradients.
    """
    costs = []
    for edges in layers:
        after = edges.tail if edges.weight is None else edges.tail + edges.weight
        costs.append(edges.latency + after * edges.opens)
    return costs


def _useful(problem: SplitProblem, layers: Layers, cutoff: int) -> list[Mask]:
    """Edges through which a split with a bound below `cutoff` may go, by every lane.

    The device of stage k cannot start before micro-batch 0 has come down, then works for m
    (f + b), then its tail follows, or the way up to stage 0 and its tail; and latency plus
    bottleneck, or rounds, holds with i = k.
    """
    costs = latencies(layers)
    before, after = so_far(layers, costs), to_go(layers, costs)
    down = so_far(layers, [edges.forward + edges.send for edges in layers])
    m = np.array(problem.micro_batches)[:, None]
    masks = []
    added = terms(problem, layers, after)
    for k, (edges, cost) in enumerate(zip(layers, costs, strict=True)):
        through = before[k][:, edges.source] + cost + after[k + 1][:, edges.target]
        work = m * edges.work
        busy = down[k][:, edges.source] + edges.send + work + edges.tail
        if k:
            up = 0 if problem.blocking else edges.send_back
            if edges.weight is not None:
                work = work - (m - problem.left(k)[0][Kind.WEIGHT]) * edges.weight
            busy = np.maximum(busy, before[k][:, edges.source] + edges.send + up + work)
        below: Mask = (through + added[k] < cutoff) & (busy < cutoff)
        masks.append(np.asarray(below.all(axis=0)))
    return masks


def rounds(
    problem: SplitProblem, stage: int, micro_batches: int | Array, round_ns: Array, work: Array
) -> Array:
    """[..] what the least or the largest number of rounds adds to the latency.

    round_ns: [..] C, latency of the stage and all after it, without the transfers into it.
    work: [..] of the stage.
    """
    if not SCHEDULES[problem.schedule].turns:
        return np.zeros_like(round_ns)
    steps, length = micro_batches - 1, problem.num_stages - stage
    most_rounds, rest = divmod(steps, length)
    added = np.maximum(round_ns + (steps - length) * work, most_rounds * round_ns + rest * work)
    return np.where(most_rounds > 0, added, 0)


def terms(problem: SplitProblem, layers: Layers, after: Sequence[Array]) -> list[Array]:
    """Per stage [R, M] what edges add to the latency at least, alone or in rounds.

    after: least latencies from nodes to the end. Of stages with nothing after them no more is said
    than of the last one. Empty stages have no rounds: the latency after them has the tail of the
    first stage, which comes once a step.
    """
    micro_batches, stage_terms = np.array(problem.micro_batches)[:, None], []
    for k, edges in enumerate(layers):
        onward = after[k + 1][:, edges.target]
        onward = np.where(onward < INFINITY, onward, 0)
        round_ns = (edges.forward + edges.backward + onward) * edges.filled
        added = rounds(problem, k, micro_batches, round_ns, edges.work)
        stage_terms.append(np.maximum(edges.term, added))
    return stage_terms


def tighten(problem: SplitProblem, layers: Layers, cutoff: int) -> Layers | None:
    """Edges that a split faster than `cutoff` may use; None if there is no such split.

    Repeated until nothing changes: fewer edges raise the latencies, which rule out more.
    """
    before = -1
    while before != (count := sum(len(edges) for edges in layers)):
        if not all(map(len, layers)):
            return None
        before, layers = count, taken(layers, _useful(problem, layers, cutoff))
    return layers


def least_terms(layers: Layers) -> Array:
    """[R] the least that the largest term of a whole split can be."""
    best = np.zeros((len(layers[0].term), layers[-1].num_targets), dtype=np.int64)
    for edges in reversed(layers):
        best = edges.from_sources(np.maximum(edges.term, best[:, edges.target]))
    return best[:, 0]


def least_path(layers: Layers, limits: Array) -> Array | None:
    """Edges [p] of least latency, summed over lanes, whose terms stay within `limits` [R]."""
    costs = [
        np.where((edges.term <= limits[:, None]).all(axis=0), edges.latency.sum(axis=0), INFINITY)
        for edges in layers
    ]
    best = to_go(layers, costs)
    if best[0][0] >= INFINITY:
        return None
    return shortest_path(layers, costs, best)


def path_of(layers: Layers, edges: Array) -> tuple[Array, Array]:
    """Arcs [N, p] and split [N, p + 1] of paths of edges [N, p]."""
    arcs = np.column_stack([stage_edges.arc[edges[:, k]] for k, stage_edges in enumerate(layers)])
    ends = [stage_edges.end[edges[:, k]] for k, stage_edges in enumerate(layers)]
    return arcs, np.column_stack([np.zeros(len(edges), dtype=np.int64), *ends])
