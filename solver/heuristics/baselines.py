"""What people do today, as plans that can be judged: min-max, equal split, Megatron's rule, AMP.

The configurations to choose from are given by the caller, in general `formulations.space.configs`.
Every plan is judged by the simulator. Each function returns plan and step time in ns, or None
if no plan of its kind fits.

The min-max split is that of FASOP, as intended, with memory checked (Hwang, Lee, Oh, Yi 2024:
FASOP: Fast yet Accurate Automated Search for Optimal Parallelization of Transformers on
Heterogeneous GPU Clusters, HPDC 2024, doi 10.1145/3625549.3658687). The published code undoes its
last move with indices that may have been overwritten, and keeps the times of the undone split;
here a move that does not help is never adopted. Its splits are not checked against memory; here
every stage of every replica fits.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby, pairwise
from math import inf

import numpy as np

from formulations.costs.tables import CostTables
from formulations.decisions import least_ends
from formulations.instance import Instance
from formulations.plan import Configuration, Degrees, Plan, simulable
from solver.heuristics.balance import UNREACHED, Balance, Order, Split, SplitSpace
from solver.heuristics.node_orders import (
    Choice,
    listed_order,
    nearest_split,
    node_orders,
    try_orders,
)
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import Stop
from solver.result import objective_weight


def even_split(tables: CostTables) -> Split:
    """Equal numbers of layers; of r left over, the last stage gets one, then stages 0 .. r - 2.

    Where that leaves a stage without its least number of blocks: the nearest split that does
    not. Raises ValueError if the chain is too short for pp stages. Memory is not looked at.
    """
    stages, layers = tables.config.pp, tables.num_layers
    each, left_over = divmod(layers, stages)
    sizes = [each + (k < left_over - 1) for k in range(stages)]
    sizes[-1] += left_over > 0
    target = tuple(accumulate(sizes, initial=0))
    earliest_end = least_ends(tables)
    if all(end >= earliest_end[start] for start, end in pairwise(target)):
        return target
    split = nearest_split(target, lambda k, start: range(earliest_end[start], layers + 1))
    if split is None:
        raise ValueError(f"{layers} layers are too few for {stages} stages")
    return split


def _move(costs: Balance, split: Split, times: list[int]) -> Split | None:
    """One layer from the slowest stage to the fastest that can take it; None if none can."""
    slow = times.index(max(times))
    for fast in sorted(range(len(times)), key=lambda k: times[k]):
        if times[fast] == times[slow]:
            return None
        # stages in between shift by one layer
        low, high = sorted((slow, fast))
        step = 1 if slow > fast else -1
        moved = tuple(b + step if low < k <= high else b for k, b in enumerate(split))
        if all(moved[k + 1] in costs.ends(k, moved[k]) for k in range(low, high + 1)):
            return moved
    return None


def fitting_even_split(costs: Balance) -> Split | None:
    """The even split, or if it does not fit, the nearest that does; None iff no split fits."""
    split = even_split(costs.space.tables)
    if costs.takes(split):
        return split
    return nearest_split(split, costs.ends)


def equal_split_of(costs: Balance) -> Split | None:
    """The even split; None if it does not fit memory."""
    split = even_split(costs.space.tables)
    return split if costs.takes(split) else None


def minmax_of(costs: Balance) -> Split | None:
    """Boundaries (pp + 1 layer indices) of the min-max split; None iff no split fits memory.

    Starts from the even split, or the nearest that fits, and moves one layer from the slowest
    stage to the fastest that has room for it, while the largest stage time falls or, among
    stages of equal time, stays without coming back to a split seen before. The largest stage
    time is never above that of the start. Stage time: forward + backward of one micro-batch on
    the slowest replica.
    """
    split = fitting_even_split(costs)
    if split is None:
        return None
    times = costs.times_ns(split)
    seen = {split}
    while (candidate := _move(costs, split, times)) and candidate not in seen:
        following = costs.times_ns(candidate)
        if max(following) > max(times):
            break
        seen.add(candidate)
        split, times = candidate, following
    return split


Found = tuple[Plan, int] | None

#: Configurations in a row whose equal chunks are no better than the best.
MOST_FAILURES = 100


def equal_blocks(tables: CostTables) -> Split | None:
    """The same number of blocks on every stage, as Megatron-LM demands; None if impossible.

    The embedding stays with the first block, the head with the last one.
    """
    blocks, stages = tables.blocks_before.tolist(), tables.config.num_stages
    each, left_over = divmod(blocks[-1], stages)
    if left_over or not each:
        return None
    inner = (blocks.index(k * each) for k in range(1, stages))
    return (0, *inner, tables.num_layers)


def equal_chunks_plan(configs: Iterable[Configuration], times: TimeTables, stop: Stop) -> Found:
    """Best plan with equally many blocks on every chunk of configs that have several per device.

    In the first node order alone: a start for a search, at the price of a simulation each. Ends
    after `MOST_FAILURES` configurations without a better plan.
    """
    choice, failures = Choice(times.instance), 0
    for bound, config in times.by_bound(config for config in configs if config.vpp > 1):
        best = choice.objective
        if bound >= best or failures == MOST_FAILURES or stop():
            break
        space = SplitSpace(times.costs(config))
        split = equal_blocks(space.tables)
        if split:
            order = next(node_orders(config.nodes_used, 1))
            costs = space.costs(order, split)
            if (costs.memory_bytes <= costs.limit_bytes).all():
                choice.offer(space, order, split, space.even)
        failures = 0 if choice.objective < best else failures + 1
    return choice.result


def _megatron_split(costs: Balance) -> Split | None:
    split = equal_blocks(costs.space.tables)
    return split if split and costs.takes(split) else None


def _growth(config: Configuration) -> tuple[int, int, int, bool]:
    return (config.zero, config.pp, config.widest_tp, "none" not in config.recompute)


def _smallest_model_parallel(instance: Instance, configs: list[Configuration]) -> Found:
    """Megatron's rule among configurations that use the same nodes."""
    order = listed_order(configs[0].nodes_used)
    widest = max(config.widest_tp for config in configs)
    grown = sorted((s for s in configs if s.pp == 1 or s.widest_tp == widest), key=_growth)
    time_tables = TimeTables(instance)
    for _, sizes in groupby(grown, key=_growth):
        fitting = list[tuple[int, int, SplitSpace]]()
        for config in sizes:
            space = SplitSpace(time_tables.costs(config))
            costs = space.balance(order)
            if split := _megatron_split(costs):
                # Their estimate of a step, (m + p - 1) (t_f + t_b) with m micro-batches per replica
                # and the slowest stage's times, by which they choose the micro-batch size
                # (Narayanan et al. 2021, section 3.4, equation 1)
                time_ns = (max(space.even) + config.pp - 1) * max(costs.times_ns(split))
                fitting.append((time_ns, -config.micro_batch, space))
        if fitting:
            choice = Choice(instance)
            best = min(fitting, key=lambda entry: entry[:2])[2]
            try_orders(choice, best, _megatron_split, [order])
            return choice.result
    return None


def _by_most_gpus(
    instance: Instance, configs: Iterable[Configuration]
) -> list[list[Configuration]]:
    """Configurations with equal degrees, 1F1B if allowed, by the nodes they use; most GPUs first.

    Of equally many GPUs those of the nodes listed first.
    """
    usual = "1f1b" if "1f1b" in instance.search.schedule else instance.search.schedule[0]
    by_nodes: dict[tuple[int, ...], list[Configuration]] = {}
    for config in configs:
        plain = set(config.degrees_used) == {Degrees(tp=config.widest_tp)}
        if plain and config.schedule == usual and simulable(instance, config):
            by_nodes.setdefault(config.nodes_used, []).append(config)
    sizes = [group.gpus_per_node for group in instance.cluster.groups]

    def num_gpus(nodes_used: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        return sum(n * size for n, size in zip(nodes_used, sizes, strict=True)), nodes_used

    return [by_nodes[nodes] for nodes in sorted(by_nodes, key=num_gpus, reverse=True)]


def megatron_rule(instance: Instance, configs: Iterable[Configuration]) -> Found:
    """The plan by the rule of thumb of Narayanan et al., SC 2021 (Megatron-LM).

    All nodes, in the order listed; equal numbers of blocks; 1F1B if allowed. Tensor parallelism
    grows up to a node (takeaway 1), then pipeline parallelism, until the model fits in memory; the
    other GPUs are used for data parallelism (takeaway 2, and table 1: t = p = 1 up to 1.7 billion
    parameters, then t = 2, 4, 8, and p > 1 only after that). At equal degrees recomputation is
    used only if it does not fit otherwise, selective before full. ZeRO, which came later, is used
    only if nothing fits without it. Among the micro-batch sizes that fit, the one of least
    (m + p - 1) (t_f + t_b) (takeaway 3, equation 1), the larger one if equal.

    Where the rule has no plan for all nodes, because degrees must divide the GPUs, the blocks and
    the batch, or because it breaks a limit on time or money: the plan for the most GPUs for which
    it has one, of the nodes listed first.
    """
    by_nodes = _by_most_gpus(instance, configs)
    plans = (_smallest_model_parallel(instance, on_nodes) for on_nodes in by_nodes)
    return next((plan for plan in plans if plan), None)


def amp_split(stages: Balance) -> tuple[int, Split] | None:
    """Split of least (m - 1) max t + sum of t over the stages, and that time in ns; None: no fit.

    t: forward and backward of a micro-batch, of m per replica. AMP's dynamic programme looks at
    every largest t that is possible. So does this, from above, until no smaller one can be better.
    What some stages alone recompute counts in their t, not in the choice of boundaries.
    """
    m, limit = max(stages.shares), int(UNREACHED)
    best: tuple[int, Split] | None = None
    latency = 0
    while (split := stages.split(limit)) is not None:
        boundaries = tuple(split.tolist())
        times = stages.times_ns(boundaries)
        passes = int((m - 1) * max(times) + sum(times))
        latency = latency or sum(times)  # that of the first split is the least
        best = min(best or (passes, boundaries), (passes, boundaries))
        # one that is better has m times its largest t at or below this
        limit = stages.work(boundaries) - 1
        if m > 1:
            limit = min(limit, (best[0] - latency) * m // (m - 1))
    return best


def amp_estimate_ns(space: SplitSpace, order: Order, split: Split) -> int:
    """AMP's estimate of a step: (m - 1) max t + sum of t and of sends, and the longest sync."""
    costs = space.costs(order, split)
    work, m = costs.forward_ns + costs.backward_ns, np.array(costs.micro_batches)
    passes = (m - 1) * work.max(axis=0) + work.sum(axis=0) + 2 * costs.send_ns.sum(axis=0)
    return int(passes.max() + costs.sync_ns.max())


def amp_plans(
    instance: Instance, configs: Iterable[Configuration], stop: Stop = lambda: False
) -> Iterator[tuple[Plan, int]]:
    """Plans that AMP's own estimate calls ever better, over degrees and micro-batch sizes.

    Li, Wang, Zhang, Yang, Kang 2022: AMP: Automatically Finding Model Parallel Strategies with
    Heterogeneity Awareness, NeurIPS. All nodes, in the order listed, tensor groups innermost, then
    replicas, then stages; 1F1B if allowed. AMP knows neither memory, recomputation nor ZeRO: here
    splits have to fit, and what makes them fit is chosen by the estimate, too. Configurations whose
    bound in closed form is above the best estimate are left out. Fewer nodes as in `megatron_rule`.
    """
    times = TimeTables(instance)
    for on_nodes in _by_most_gpus(instance, configs):
        order, least = listed_order(on_nodes[0].nodes_used), inf
        for bound, config in times.by_bound(on_nodes):
            if bound >= least or stop():
                break
            space = SplitSpace(times.costs(config))
            split = amp_split(space.balance(order)) if space.runs(order) else None
            if split is None:
                continue
            time_ns, choice = amp_estimate_ns(space, order, split[1]), Choice(instance)
            if (estimate := time_ns * objective_weight(instance, config)) >= least:
                continue
            choice.offer(space, order, split[1], space.even)
            if choice.result:  # within the limits
                least = estimate
                yield choice.result
        if least < inf:
            return
