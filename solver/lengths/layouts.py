"""The strategies of an instance: every layout over all its nodes, by the plan that is best in it.

A layout has degrees, ZeRO stage and a choice of ways to recompute; where optimizer states may be
split, they are: that takes a row no longer. Its longest row is the longest
with which any split fits the memory; the plan is the best one for rows of that length. Where it
recomputes less in shorter rows, or splits them better, rows of half the length are another strategy
of the layout, and so on. The schedule is 1F1B, of which alone the time of mixed rows is known.

On several types of GPUs, orders of nodes are tried as heuristics do: what fits in another order
alone is not found.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from pydantic import TypeAdapter

from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.instance.rows import of_rows
from formulations.lengths.problem import PaddedTime, RowTime
from formulations.lengths.row_times import (
    PlanRows,
    instance_of_time,
    longest_row,
    plan_rows,
    row_multiple,
    slowest_row_ns,
)
from formulations.plan import GRADIENTS_SPLIT, Plan, Shape
from formulations.space import node_vectors, shapes_of
from solver.heuristics.balance import SplitSpace, order_balance
from solver.heuristics.baselines import fitting_even_split
from solver.heuristics.node_orders import ORDER_LIMIT, node_orders
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import TimeUp, time_up_after
from solver.options import SolveOptions
from solver.search.driver import ShapeSearch
from solver.study.store import Study, made_once

#: Rows per replica and stage of the step for which a plan is the best one.
ROWS_PER_STAGE = 4
#: A strategy that takes shorter rows than another one of its degrees must be faster by so much.
LEAST_GAIN = 0.02
#: In a study: its notes, and records of layouts.
LENGTHS = "lengths"
_VARIANTS = TypeAdapter(list[PlanRows])
#: Seconds for the best plan of a layout and a length of rows.
LIMIT_S = 10.0


class NoLayoutError(PlannerError):
    """No layout over all nodes is in the search, or they cost more than the instance allows."""

    exit_code = 3


def found_strategies(
    instance: Instance, tell: Callable[[int, int], object], study: Study | None = None
) -> list[PlanRows]:
    """Those of the instance's search; `tell` hears how many layouts of how many are done.

    Raises NoLayoutError where there is none, whatever the lengths.
    """
    own = instance_of_time(instance)
    if not any(node_vectors(own)):
        limit = instance.limits.max_price_usd_per_hour
        raise NoLayoutError(
            f"limits.max_price_per_hour: all nodes, which strategies use, cost more than {limit:g}"
            " USD/h"
        )
    found: list[PlanRows] = []
    shapes = list(layouts(own))
    if not shapes:
        num_gpus = sum(group.nodes * group.gpus_per_node for group in own.cluster.groups)
        raise NoLayoutError(
            f"search: no layout over all {num_gpus} GPUs, which every strategy uses; allow more of"
            " data_parallel, tensor_parallel, context_parallel, pipeline_parallel"
        )

    def variants(shape: Shape) -> list[PlanRows]:
        key = shape.model_dump_json()
        return made_once(study, LENGTHS, key, _VARIANTS, lambda: [*_variants(own, shape)])

    if study is not None:
        study.note(LENGTHS, {"layouts": len(shapes)})
    for done, shape in enumerate(shapes):
        tell(done, len(shapes))
        found += variants(shape)
    return _needed(found)


def layouts(instance: Instance) -> Iterator[Shape]:
    """Shapes over all nodes, of rows as micro-batches; degrees per stage are left out."""
    groups, allowed = instance.cluster.groups, instance.search.data_parallel
    tokens = instance.workload.sequence_length
    num_gpus = sum(group.nodes * group.gpus_per_node for group in groups)
    for dp in allowed or range(1, num_gpus + 1):
        search = instance.search.model_copy(update={"data_parallel": (dp,)})
        own = of_rows(instance.model_copy(update={"search": search}), tokens, dp)
        shapes = shapes_of(own, tuple(group.nodes for group in groups))
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
    found = (order_balance(space, order, shares) for order in orders)
    return any(fitting_even_split(stages) is not None for stages in found)


def _best_plan(instance: Instance, shape: Shape, tokens: int) -> Plan | None:
    """The best plan of a layout for rows of so many tokens, or the best within the time."""
    options = SolveOptions(time_limit_s=LIMIT_S)
    search = ShapeSearch(_rows(instance, shape, tokens), options, None, space=iter([shape]))
    with suppress(TimeUp), time_up_after(search.deadline.end_s):
        search.incumbents.seed([shape])
        search.run()
    return search.incumbents.known.plan


def _needed(found: Sequence[PlanRows]) -> list[PlanRows]:
    """Without those that another one of their degrees makes needless."""
    needed: list[PlanRows] = []
    for one in sorted(found, key=lambda one: (-one.strategy.longest, _slowest(one))):
        if not any(_replaces(other, one) for other in needed):
            needed.append(one)
    return [one for one in found if one in needed]


def _replaces(one: PlanRows, other: PlanRows) -> bool:
    """Whether a strategy takes all rows of another one of its degrees, hardly slower."""
    a, b = one.plan.shape, other.plan.shape
    if (a.degrees, a.dp, a.pp, a.ep) != (b.degrees, b.dp, b.pp, b.ep):
        return False
    most = 1 / (1 - LEAST_GAIN)
    return all(
        p.longest_row >= q.longest_row
        and all(x <= most * y for x, y in zip(_figures(p.time), _figures(q.time), strict=False))
        for p, q in zip(one.strategy.replicas, other.strategy.replicas, strict=True)
    )


def _slowest(found: PlanRows) -> tuple[float, ...]:
    """The figures of the slowest replica on short rows."""
    return max(_figures(replica.time) for replica in found.strategy.replicas)


def _figures(time: RowTime | PaddedTime) -> tuple[float, ...]:
    """Times of a curve's parts or of rows, what counts for short rows first."""
    if isinstance(time, PaddedTime):
        return tuple(ns for _, ns in time.rows_ns)
    return time.per_row_ns, time.per_token_ns, time.per_square_ns


def plan_name(plan: Plan) -> str:
    """The degrees of a plan, and whether it recomputes anything."""
    shape = plan.shape
    tps = "/".join(dict.fromkeys(str(one.tp) for one in shape.degrees_used))
    more = [("cp", shape.cp), ("ep", shape.ep)]
    shared = [f"{name} {degree}" for name, degree in more if degree > 1]
    split = [f"ZeRO {shape.zero}"] if shape.zero >= GRADIENTS_SPLIT else []
    stages = (stage for replica in plan.replicas for stage in replica.stages)
    again = ["recomputing"] if any(one.recomputed.blocks for one in stages) else []
    return ", ".join([f"dp {shape.dp}", f"tp {tps}", *shared, f"pp {shape.pp}", *split, *again])
