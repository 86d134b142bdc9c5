"""What a step of mixed lengths is decided upon: sequences, strategies and switches.

Strategies are those that were measured, or every layout over all nodes, by the plan that is best in
it. A layout has degrees, ZeRO stage and a choice of ways to recompute; where optimizer states may
be split, they are: that takes a row no longer. Its longest row is the longest with which any split
fits the memory; the plan is the best one for rows of that length. Where it recomputes less in
shorter rows, or splits them better, rows of half the length are another strategy of the layout, and
so on. The schedule is 1F1B, of which alone the time of mixed rows is known. On several types of
GPUs, orders of nodes are tried as heuristics do: what fits in another order alone is not found.

A strategy is kept if it is close to the fastest on some run of classes, reduction of gradients
aside; one that is slower everywhere could only be of use where it is much cheaper to switch to.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from math import lcm

import numpy as np
from pydantic import TypeAdapter

from formulations.errors import NoPlanError, PlannerError
from formulations.instance import Cluster, Instance, Workload
from formulations.instance.lengths import Lengths
from formulations.instance.record import MOST_GPUS_PER_NODE
from formulations.lengths.problem import Mixed, Strategy, Switching
from formulations.lengths.row_times import (
    PlanRows,
    RowCosts,
    atoms_of,
    instance_of_time,
    lengths_of,
    longest_row,
    measured_problem,
    of_rows,
    plan_name,
    plan_rows,
    row_multiple,
)
from formulations.lengths.strategy_time import NEVER, StrategyTimes
from formulations.lengths.tour import best_single
from formulations.plan import Configuration, Plan
from formulations.space import configs_of
from formulations.space.configurations import node_vectors
from formulations.switching.shards import Kind, Layout, layout_of
from formulations.switching.switch import switch_of
from solver.heuristics.balance import SplitSpace
from solver.heuristics.baselines import fitting_even_split
from solver.heuristics.node_orders import ORDER_LIMIT, node_orders
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import TimeUp, time_up_after
from solver.options import SolveOptions
from solver.search.plan_search import PlanSearch
from solver.study.store import Shelf, Study
from solver.switching.quickest import plan_switch

#: Rows per replica and stage of the step for which a plan is the best one.
ROWS_PER_STAGE = 4
#: A strategy that takes shorter rows than another one of its degrees must be faster by so much.
LEAST_GAIN = 0.02
#: Seconds for the best plan of a layout and a length of rows.
LIMIT_S = 10.0
#: Of the fastest's time, so much more is close to it.
CLOSE = 0.05
#: In a study: its notes, and records of layouts.
LENGTHS = "lengths"
_VARIANTS = TypeAdapter(list[PlanRows])


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

    What the study holds of layouts is not worked out again.

    Raises InstanceError without a section `lengths`, NoPlanError where no strategy takes the
    longest sequences.
    """
    lengths = lengths_of(instance)
    if lengths.strategies:
        mixed, above = measured_problem(instance)
        _check_longest(lengths, mixed.strategies)
        return Candidates(mixed, None, above)
    variants = found_strategies(instance, tell, study)
    _check_longest(lengths, [rows.strategy for rows in variants])
    kept = useful(instance, variants)
    plans = tuple(rows.plan for rows in kept)
    switching = switch_times(instance.cluster, instance.workload, plans)
    strategies = tuple(rows.strategy for rows in kept)
    mixed = Mixed(atoms_of(lengths), strategies, switching, lengths.rows)
    return Candidates(mixed, plans, tuple(rows.above for rows in kept))


def _check_longest(lengths: Lengths, strategies: Sequence[Strategy]) -> None:
    tokens, last = [c.up_to for c in lengths.classes], lengths.classes[-1]
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
        raise NoPlanError(
            f"lengths: sequences of {last.up_to} tokens, {last.count} a step, fit no strategy:"
            f" {limit if longest else 'none has room for a row; '}{remedy}"
        )


def found_strategies(
    instance: Instance, tell: Callable[[int, int], object], study: Study | None = None
) -> list[PlanRows]:
    """Those of the instance's search; `tell` hears how many layouts of how many are done.

    Raises NoPlanError where there is none, whatever the lengths.
    """
    timed = instance_of_time(instance)
    if not any(node_vectors(timed)):
        limit = instance.limits.max_price_usd_per_hour
        raise NoPlanError(
            f"limits.max_price_per_hour: all nodes, which strategies use, cost more than {limit:g}"
            " USD/h"
        )
    configs = list(layouts(timed))
    if not configs:
        raise NoPlanError(
            f"search: no layout over all {timed.cluster.num_gpus} GPUs, which every strategy uses;"
            " allow more of data_parallel, tensor_parallel, context_parallel, pipeline_parallel"
        )
    if study is not None:
        study.note(LENGTHS, {"layouts": len(configs)})
    strategies = list[PlanRows]()
    for done, config in enumerate(configs):
        tell(done, len(configs))
        make, key = partial(_variants, timed, config), config.model_dump(mode="json")
        strategies += Shelf(study, LENGTHS, _VARIANTS).once(key, make)
    return strategies


def layouts(instance: Instance) -> Iterator[Configuration]:
    """Configurations over all nodes, of rows as micro-batches; degrees per stage are left out."""
    cluster, tokens = instance.cluster, instance.workload.sequence_length
    for dp in instance.search.data_parallel or range(1, cluster.num_gpus + 1):
        rows = of_rows(instance.but(search={"data_parallel": (dp,)}), tokens, dp)
        configs = configs_of(rows, tuple(group.nodes for group in cluster.groups))
        yield from (config for config in configs if not config.per_stage)


def _variants(instance: Instance, config: Configuration) -> list[PlanRows]:
    """The strategies of a layout: for the longest rows first, then for shorter ones."""
    num_rows = config.pp * ROWS_PER_STAGE  # of a replica
    orders = list(node_orders(config.nodes_used, ORDER_LIMIT))

    def fits(tokens: int) -> bool:
        """Whether some split fits the memory, in some node order, with rows of so many tokens."""
        tables = TimeTables(of_rows(instance, tokens, config.dp * num_rows)).costs(config)
        space, shares = SplitSpace(tables), (num_rows,) * config.dp
        trials = (space.balance(order, shares) for order in orders)
        return any(fitting_even_split(stages) is not None for stages in trials)

    variants, step = list[PlanRows](), row_multiple(config)
    tokens = longest_row(instance, config, fits)
    while tokens:
        # The best plan of the layout for rows of so many tokens, or the best within the time
        rows = of_rows(instance, tokens, config.dp * num_rows)
        search = PlanSearch(rows, SolveOptions(time_limit_s=LIMIT_S), space=iter([config]))
        with suppress(TimeUp), time_up_after(search.deadline.end_s):
            search.incumbents.seed([config])
            search.run()
        plan = search.incumbents.known.plan
        if plan is None:
            break
        if variants:  # by the time of a row that is one sequence, on the slowest stage of all
            plans = variants[-1].plan, plan
            before_ns, row_ns = (max(RowCosts(instance, p).slowest_ns(tokens)) for p in plans)
            if row_ns > (1 - LEAST_GAIN) * before_ns:
                break
        variants.append(plan_rows(instance, plan, plan_name(plan)))
        tokens = tokens // 2 // step * step
    return variants


def useful(instance: Instance, strategies: Sequence[PlanRows]) -> list[PlanRows]:
    """Those that are close to the fastest on some run of classes, each with a name."""
    lengths = lengths_of(instance)
    atoms = atoms_of(lengths)
    alone = (replace(rows.strategy, visit_ns=0) for rows in strategies)
    times = [StrategyTimes(strategy, atoms, lengths.rows).of_intervals() for strategy in alone]
    fastest = np.minimum.reduce(times)
    limit = np.where(fastest < NEVER, fastest * (1 + CLOSE), 0)
    close = [bool((of_strategy <= limit).any()) for of_strategy in times]
    kept = [rows for rows, near in zip(strategies, close, strict=True) if near]
    # Names: with the length of their rows, and a number, where it takes these to tell them apart
    degrees, seen = Counter(rows.strategy.name for rows in kept), Counter[str]()
    for n, rows in enumerate(kept):
        name = rows.strategy.name
        if degrees[name] > 1:
            name = f"{name}, rows of {rows.strategy.longest}"
        seen[name] += 1
        name = f"{name} ({seen[name]})" if seen[name] > 1 else name
        kept[n] = replace(rows, strategy=replace(rows.strategy, name=name))
    return kept


def switch_times(cluster: Cluster, workload: Workload, plans: Sequence[Plan]) -> Switching:
    """Times of switch plans from every plan to every other, 0 where nothing moves.

    Sequence lengths and batch of the workload do not count.
    """
    layouts = [layout_of(cluster, plan) for plan in plans]

    @cache
    def time_ns(before: Layout, after: Layout, kind: Kind) -> int:
        planned = plan_switch(switch_of(cluster, workload, before, after, [kind]))
        if planned.interrupted:
            raise KeyboardInterrupt
        return planned.time_ns

    def times(kind: Kind) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(time_ns(a, b, kind) for b in layouts) for a in layouts)

    return Switching(parameters_ns=times("parameters"), gradients_ns=times("gradients"))


_FIELDS = {
    "dp": "data_parallel",
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "zero": "zero",
}
ALLOWED = f"NAME=NUMBER of {', '.join(_FIELDS)}, with commas between; such as dp=1,tp=16,pp=2"


def static_step(instance: Instance, text: str) -> tuple[str, int]:
    """Name and step, in ns, of the best plan of a strategy such as dp=1,tp=16,pp=2, alone.

    Published systems compare with one: HotSPa's 1.96 and 1.50 are against (dp 1, tp 16, pp 2), the
    one strategy of Megatron-LM that has memory for its longest sequences (SOSP 2024, table 3). Its
    tensor groups fill two nodes of 8. The instance says the rest; the plan is the fastest of its
    degrees that takes all sequences.

    Tensor groups of several nodes take whole ones, where all links between nodes are alike. Raises
    PlannerError for another text, NoPlanError where the strategy has no plan for the sequences.
    """
    degrees = dict[str, int]()
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        written = "[0-3]" if name == "zero" else r"[1-9]\d{0,5}"
        if name not in _FIELDS or name in degrees or not re.fullmatch(written, number):
            raise PlannerError(f"--static: {part.strip()!r}; allowed: {ALLOWED}")
        degrees[name] = int(number)
    search = {_FIELDS[name]: (number,) for name, number in degrees.items()}
    wide = instance.but(cluster=_wide_nodes(instance, degrees))
    try:
        listed = candidates(wide.but(search=search)).mixed
    except NoPlanError as error:
        raise NoPlanError(f"--static {text}: {error}") from None
    single = best_single(listed)
    if single is None:
        raise NoPlanError(f"--static {text}: no plan takes all sequences alone")
    return listed.strategies[single.strategy].name, single.step_ns


def _wide_nodes(instance: Instance, degrees: dict[str, int]) -> Cluster:
    """The cluster, its nodes joined so that each has the GPUs of a sequence."""
    cluster, gpus = instance.cluster, degrees.get("tp", 1) * degrees.get("cp", 1)
    joined = lcm(*(-(-gpus // group.gpus_per_node) for group in cluster.groups))
    if joined == 1:
        return cluster
    links = {group.inter_node for group in cluster.groups}
    beyond = len(links) > 1 or gpus > MOST_GPUS_PER_NODE
    for group in cluster.groups:
        if beyond or gpus % group.gpus_per_node or group.nodes % joined or group.spot:
            raise PlannerError(
                f"--static: {gpus} GPUs of a sequence, {group.gpus_per_node} in a node of "
                f"{group.name}; allowed: up to as many, or up to {MOST_GPUS_PER_NODE} of whole "
                "nodes, where all have equal links and no spot terms"
            )
    return cluster.joined(joined)
