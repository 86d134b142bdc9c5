"""What a step of mixed lengths is decided upon: sequences, strategies and switches.

Strategies are those that were measured, or every layout over all nodes, by the plan that is best in
it. A layout has degrees, ZeRO stage and a choice of ways to recompute; where optimizer states may
be split, they are: that takes a row no longer. Its longest row is the longest with which any split
fits the memory; the plan is the best one for rows of that length. Where it recomputes less in
shorter rows, or splits them better, rows of half the length are another strategy of the layout, and
so on. The schedule is 1F1B, of which alone the time of mixed rows is known. On several types of
GPUs, orders of nodes are tried as heuristics do: what fits in another order alone is not found.

Shorter rows than those that fit make for a shorter fill of a pipeline, and for more of what is once
per row. A strategy is kept with every length of rows with which it is close to the fastest on some
run of classes, reduction of gradients aside; one that is slower everywhere could only be of use
where it is much cheaper to switch to.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import product

import numpy as np
from pydantic import TypeAdapter

from formulations.errors import PlannerError
from formulations.instance import Cluster, Instance, Workload
from formulations.instance.lengths import Lengths
from formulations.lengths.problem import Mixed, RowTime, Strategy, Switching
from formulations.lengths.row_times import (
    PlanRows,
    atoms_of,
    instance_of_time,
    lengths_of,
    longest_row,
    measured_problem,
    of_rows,
    plan_rows,
    row_multiple,
    slowest_row_ns,
)
from formulations.lengths.strategy_time import NEVER, Numbers, StrategyTimes
from formulations.plan import GRADIENTS_SPLIT, Plan, Shape
from formulations.space import shapes_of
from formulations.space.configurations import node_vectors
from formulations.switching.shards import Kind, Layout, layout_of
from formulations.switching.switch import switch_of
from solver.heuristics.balance import SplitSpace, order_balance
from solver.heuristics.baselines import fitting_even_split
from solver.heuristics.node_orders import ORDER_LIMIT, node_orders
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import TimeUp, time_up_after
from solver.options import SolveOptions
from solver.search.plan_search import PlanSearch
from solver.study.store import Study, made_once
from solver.switching.quickest import plan_switch

#: Rows per replica and stage of the step for which a plan is the best one.
ROWS_PER_STAGE = 4
#: A strategy that takes shorter rows than another one of its degrees must be faster by so much.
LEAST_GAIN = 0.02
#: Seconds for the best plan of a layout and a length of rows.
LIMIT_S = 10.0
#: Of the fastest's time, so much more is close to it.
CLOSE = 0.05
#: Rows are not made shorter than so many tokens.
SHORTEST_ROW = 1024
#: In a study: its notes, and records of layouts; records of times between two layouts.
LENGTHS, SWITCH = "lengths", "switch"
_VARIANTS, _LAYOUT, _TIME = TypeAdapter(list[PlanRows]), TypeAdapter(Layout), TypeAdapter(int)


class LongSequenceError(PlannerError):
    """Sequences that no strategy takes."""

    exit_code = 3


class NoLayoutError(PlannerError):
    """No layout over all nodes is in the search, or they cost more than the instance allows."""

    exit_code = 3


@dataclass(frozen=True)
class Candidates:
    """The problem, and of every strategy its plan and how far its times are above what is known.

    plans: None where strategies were measured. above: shares of the time of a row, at most.
    """

    mixed: Mixed
    plans: tuple[Plan, ...] | None
    above: tuple[float, ...]


def candidates(
    instance: Instance,
    tell: Callable[[int, int], object] = lambda done, total: None,
    study: Study | None = None,
) -> Candidates:
    """Strategies as measured, else as the instance's search allows; `tell` hears how far it is.

    What the study holds of layouts, and of switches between them, is not worked out again.

    Raises InstanceError without a section `lengths`, LongSequenceError where no strategy takes the
    longest sequences.
    """
    lengths = lengths_of(instance)
    if lengths.strategies:
        mixed, above = measured_problem(instance)
        _check_longest(lengths, mixed.strategies)
        return Candidates(mixed, None, above)
    layouts = found_strategies(instance, tell, study)
    _check_longest(lengths, [one.strategy for one in layouts])
    kept = useful(instance, layouts)
    plans = [one.plan for one in kept]
    switching = switch_times(instance.cluster, instance.workload, plans, study)
    strategies = tuple(one.strategy for one in kept)
    mixed = Mixed(atoms_of(lengths), strategies, switching, lengths.rows)
    return Candidates(mixed, tuple(plans), tuple(one.above for one in kept))


def _check_longest(lengths: Lengths, strategies: Sequence[Strategy]) -> None:
    """Refuses sequences that are longer than any strategy takes."""
    tokens, last = [one.up_to for one in lengths.classes], lengths.classes[-1]
    longest = 0
    for strategy in strategies:
        measured = zip(tokens, strategy.atoms_ns, strict=False)
        sizes = [n for n, time_ns in measured if time_ns is not None]
        longest = max([longest, *sizes, *([strategy.longest] if strategy.replicas else [])])
    if longest < last.up_to:
        remedy = (
            "measure a strategy for them: longest_row, class_times"
            if lengths.strategies
            else "allow more in search: tensor_parallel, context_parallel, pipeline_parallel,"
            " recompute: full, zero"
        )
        limit = f"{longest} tokens at most; cut them off there, or "
        raise LongSequenceError(
            f"lengths: sequences of {last.up_to} tokens, {last.count} a step, fit no strategy:"
            f" {limit if longest else 'none has room for a row; '}{remedy}"
        )


def found_strategies(
    instance: Instance, tell: Callable[[int, int], object], study: Study | None = None
) -> list[PlanRows]:
    """Those of the instance's search; `tell` hears how many layouts of how many are done.

    Raises NoLayoutError where there is none, whatever the lengths.
    """
    timed = instance_of_time(instance)
    if not any(node_vectors(timed)):
        limit = instance.limits.max_price_usd_per_hour
        raise NoLayoutError(
            f"limits.max_price_per_hour: all nodes, which strategies use, cost more than {limit:g}"
            " USD/h"
        )
    strategies, shapes = list[PlanRows](), list(layouts(timed))
    if not shapes:
        num_gpus = sum(group.nodes * group.gpus_per_node for group in timed.cluster.groups)
        raise NoLayoutError(
            f"search: no layout over all {num_gpus} GPUs, which every strategy uses; allow more of"
            " data_parallel, tensor_parallel, context_parallel, pipeline_parallel"
        )

    def variants(shape: Shape) -> list[PlanRows]:
        key = shape.model_dump_json()
        return made_once(study, LENGTHS, key, _VARIANTS, lambda: [*_variants(timed, shape)])

    if study is not None:
        study.note(LENGTHS, {"layouts": len(shapes)})
    for done, shape in enumerate(shapes):
        tell(done, len(shapes))
        strategies += variants(shape)
    return _needed(strategies)


def layouts(instance: Instance) -> Iterator[Shape]:
    """Shapes over all nodes, of rows as micro-batches; degrees per stage are left out."""
    groups, allowed = instance.cluster.groups, instance.search.data_parallel
    tokens = instance.workload.sequence_length
    num_gpus = sum(group.nodes * group.gpus_per_node for group in groups)
    for dp in allowed or range(1, num_gpus + 1):
        search = instance.search.model_copy(update={"data_parallel": (dp,)})
        rows = of_rows(instance.model_copy(update={"search": search}), tokens, dp)
        shapes = shapes_of(rows, tuple(group.nodes for group in groups))
        yield from (shape for shape in shapes if not shape.per_stage)


def _variants(instance: Instance, shape: Shape) -> Iterator[PlanRows]:
    """The strategies of a layout: for the longest rows first, then for shorter ones."""
    tokens = longest_row(instance, shape, partial(_has_room, instance, shape))
    before, step = None, row_multiple(shape)
    while tokens:
        plan = _best_plan(instance, shape, tokens)
        if plan is None:
            return
        row_ns = partial(slowest_row_ns, instance, tokens=tokens)
        if before and row_ns(plan) > (1 - LEAST_GAIN) * row_ns(before):
            return
        yield plan_rows(instance, plan, plan_name(plan))
        before, tokens = plan, tokens // 2 // step * step


def _rows(instance: Instance, shape: Shape, tokens: int) -> Instance:
    return of_rows(instance, tokens, shape.dp * shape.pp * ROWS_PER_STAGE)


def _has_room(instance: Instance, shape: Shape, tokens: int) -> bool:
    """Whether some split fits the memory, in some node order, with rows of so many tokens."""
    tables = TimeTables(_rows(instance, shape, tokens)).costs(shape)
    space, shares = SplitSpace(tables), (shape.pp * ROWS_PER_STAGE,) * shape.dp
    orders = node_orders(shape.nodes_used, ORDER_LIMIT)
    trials = (order_balance(space, order, shares) for order in orders)
    return any(fitting_even_split(stages) is not None for stages in trials)


def _best_plan(instance: Instance, shape: Shape, tokens: int) -> Plan | None:
    """The best plan of a layout for rows of so many tokens, or the best within the time."""
    options = SolveOptions(time_limit_s=LIMIT_S)
    search = PlanSearch(_rows(instance, shape, tokens), options, space=iter([shape]))
    with suppress(TimeUp), time_up_after(search.deadline.end_s):
        search.incumbents.seed([shape])
        search.run()
    return search.incumbents.known.plan


def _needed(strategies: Sequence[PlanRows]) -> list[PlanRows]:
    """Without those that another one of their degrees makes needless."""
    needed: list[PlanRows] = []
    for rows in sorted(strategies, key=lambda rows: (-rows.strategy.longest, _slowest(rows))):
        if not any(_replaces(longer, rows) for longer in needed):
            needed.append(rows)
    return [rows for rows in strategies if rows in needed]


def _replaces(longer: PlanRows, shorter: PlanRows) -> bool:
    """Whether a strategy takes all rows of another one of its degrees, hardly slower."""
    a, b = longer.plan.shape, shorter.plan.shape
    if (a.degrees, a.dp, a.pp, a.ep) != (b.degrees, b.dp, b.pp, b.ep):
        return False
    factor = 1 / (1 - LEAST_GAIN)
    pairs = zip(longer.strategy.pipelines, shorter.strategy.pipelines, strict=True)
    return all(
        p.longest_row >= q.longest_row
        and all(x <= factor * y for x, y in zip(_figures(p.time), _figures(q.time), strict=False))
        for p, q in pairs
    )


def _slowest(rows: PlanRows) -> tuple[float, ...]:
    """The figures of the slowest replica on short rows."""
    return max(_figures(replica.time) for replica in rows.strategy.replicas)


def _figures(time: RowTime) -> tuple[float, ...]:
    """Times of a curve's parts or of rows, what counts for short rows first."""
    curve = time.per_row_ns, time.per_token_ns, time.per_square_ns
    return tuple(ns for _, ns in time.rows_ns) or curve


def plan_name(plan: Plan) -> str:
    """The degrees of a plan, and whether it recomputes anything."""
    shape = plan.shape
    tps = "/".join(dict.fromkeys(str(degrees.tp) for degrees in shape.degrees_used))
    more = [("cp", shape.cp), ("ep", shape.ep)]
    shared = [f"{name} {degree}" for name, degree in more if degree > 1]
    split = [f"ZeRO {shape.zero}"] if shape.zero >= GRADIENTS_SPLIT else []
    stages = (stage for replica in plan.replicas for stage in replica.stages)
    again = ["recomputing"] if any(stage.recomputed.blocks for stage in stages) else []
    return ", ".join([f"dp {shape.dp}", f"tp {tps}", *shared, f"pp {shape.pp}", *split, *again])


def useful(instance: Instance, strategies: Sequence[PlanRows]) -> list[PlanRows]:
    """Those that are close to the fastest on some run of classes, with rows as long as they are.

    Of the lengths of a plan's rows those that are its best ones there; each with a name.
    """
    fastest = np.minimum.reduce(
        [_times(instance, rows.strategy).min(axis=0) for rows in strategies]
    )
    limit = np.where(fastest < NEVER, fastest * (1 + CLOSE), 0)
    kept = []
    for rows in strategies:
        times = _times(instance, rows.strategy)
        best = times == times.min(axis=0)
        for halvings in np.flatnonzero((best & (times <= limit)).any(axis=(1, 2))).tolist():
            shorter = partial(plan_rows, instance, rows.plan, rows.strategy.name)
            kept.append(shorter(halvings) if halvings else rows)
    # Names: with the length of their rows, and a number, where it takes these to tell them apart
    degrees = Counter(rows.strategy.name for rows in kept)
    seen: Counter[str] = Counter()
    for n, rows in enumerate(kept):
        name = rows.strategy.name
        if degrees[name] > 1:
            name = f"{name}, rows of {rows.strategy.longest}"
        seen[name] += 1
        name = f"{name} ({seen[name]})" if seen[name] > 1 else name
        kept[n] = replace(rows, strategy=replace(rows.strategy, name=name))
    return kept


def _times(instance: Instance, strategy: Strategy) -> Numbers:
    """[halvings of its rows, i, j] time of a strategy's rows for the classes i .. j - 1."""
    lengths = lengths_of(instance)
    several = lengths.rows == "packed" and max(one.stages for one in strategy.replicas) > 1
    halvings = max(0, (strategy.longest // SHORTEST_ROW).bit_length() - 1) if several else 0
    times = []
    for n in range(halvings + 1):
        replicas = (replace(one, longest_row=one.longest_row >> n) for one in strategy.replicas)
        shorter = replace(strategy, replicas=tuple(replicas), visit_ns=0)
        times.append(StrategyTimes(shorter, atoms_of(lengths), lengths.rows).of_intervals())
    return np.stack(times)


def switch_times(
    cluster: Cluster, workload: Workload, plans: Sequence[Plan], study: Study | None = None
) -> Switching:
    """Times of switch plans from every plan to every other, 0 where nothing moves.

    Sequence lengths and batch of the workload do not count.
    """
    layouts = [layout_of(cluster, plan) for plan in plans]
    names = {layout: sha256(_LAYOUT.dump_json(layout)).hexdigest() for layout in layouts}

    def time_ns(before: Layout, after: Layout, kind: Kind) -> int:
        switch = switch_of(cluster, workload, before, after, [kind])
        planned = plan_switch(switch)
        if planned.interrupted:
            raise KeyboardInterrupt
        return planned.time_ns

    def times(kind: Kind) -> tuple[tuple[int, ...], ...]:
        pair_ns = {}
        for before, after in product(names, names):
            key = f"{kind} from {names[before]} to {names[after]}"
            make = partial(time_ns, before, after, kind)
            pair_ns[before, after] = made_once(study, SWITCH, key, _TIME, make)
        return tuple(tuple(pair_ns[before, after] for after in layouts) for before in layouts)

    return Switching(parameters_ns=times("parameters"), gradients_ns=times("gradients"))
