"""Solving one config exactly: infeasible, bounded or solved, over all node orders and shares."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, product
from math import ceil
from random import Random

import numpy as np

from formulations.costs.placement import PlacementCosts, Placer
from formulations.decisions import Decisions
from formulations.plan import Plan, simulable
from formulations.space.slots import runs_order
from formulations.units import ceil_div
from solver.bounds.largest_share import config_bound_ns, largest_share
from solver.bounds.node_classes import classes_of
from solver.bounds.surrogate_replica import Relaxation, SurrogateReplica, order_along
from solver.enumeration.by_device import best_by_device, best_by_stage
from solver.enumeration.engine import ConfigAnswer, even_plan, solve_split
from solver.enumeration.enumerate import below
from solver.enumeration.uneven_shares import Uneven, dealt_from_below
from solver.graph.all_orders import lane_width, order_graph
from solver.graph.placements import ReplicaClass, StageZones, fixed_order, replica_classes
from solver.graph.problem import Intervals
from solver.heuristics.balance import Order
from solver.heuristics.config_search import ConfigSearch, State
from solver.heuristics.node_orders import count_orders, node_orders
from solver.heuristics.stage_orders import with_stage_orders
from solver.heuristics.trial import PathPool
from solver.interrupt import Stop, after

#: With more distinct node orders than these only the heuristic's are tried: the configuration stays
#: open.
ORDER_LIMIT = 20_000
#: Up to so many are tried without a relaxation before.
FEW_ORDERS = 100
#: Larger gaps are not taken off a cutoff.
MOST_GAP = 0.5
#: How often each order may ask whether to stop before the others had their turn.
FIRST_EFFORT = 400


#: An exact method for one configuration: its best plan with a step time below a cutoff, to a gap.
ConfigEngine = Callable[[Intervals, int, float, Stop], ConfigAnswer]


def lacks_memory(intervals: Intervals) -> bool:
    """Whether no split fits even if every stage had the roomiest GPU used.

    Proof. Stage k holds no fewer micro-batches than with the least share of any replica, on a
    GPU of some group used, of those with equal degrees at most on the largest; `ends` are the
    layers where a chain of k + 1 such stages can end.
    """
    tables = intervals.tables
    config, instance = tables.config, tables.instance
    even = instance.search.micro_batches == "even"
    least_share = tables.num_micro_batches // config.dp if even else 1
    ends = np.zeros(tables.num_layers + 1, dtype=bool)
    ends[0] = True
    for k in range(config.num_stages):
        fits = np.any([intervals.fits(j, k, least_share) for j in tables.roomiest], axis=0)
        ends = np.any(fits[ends], axis=0)
    return not ends[-1]


def _share_vectors(
    intervals: Intervals,
    placement: PlacementCosts,
    classes: list[ReplicaClass],
    cutoff: int,
    stop: Stop,
) -> list[list[int]] | None:
    """Shares per class with which plans may be below the cutoff; None if stopped."""
    tables = intervals.tables
    total, dp = tables.num_micro_batches, tables.config.dp
    if tables.instance.search.micro_batches == "even":
        return [[total // dp] * len(classes)]
    counts, largest = [len(alike.replicas) for alike in classes], []
    for alike in classes:
        if stop():
            return None
        alone = fixed_order(intervals, placement, [alike], [1])
        largest.append(largest_share(alone, intervals.room, total - dp + 1, cutoff))
    work = (intervals.forward + intervals.backward)[:, 0, -1]
    speed = [int(work[list(alike.groups)].sum()) for alike in classes]
    vectors = least_vectors(counts, largest, total)
    return sorted(vectors, key=lambda v: max(m * s for m, s in zip(v, speed, strict=True)))


def least_vectors(counts: Sequence[int], largest: Sequence[int], total: int) -> Iterator[list[int]]:
    """Vectors of largest shares, 1 <= v_c <= largest_c, that just cover `total` micro-batches.

    A plan's step time is the largest over its replicas and grows with each share, so in one class
    all replicas but the last few run the class's largest share. It is enough to try the least
    vectors of largest shares: lowering any class by one would leave too few.
    """
    if min(largest) < 1:
        return
    lowest = []
    for c, num_replicas in enumerate(counts):
        rest = sum(n * m for d, (n, m) in enumerate(zip(counts, largest, strict=True)) if d != c)
        lowest.append(max(1, ceil_div(total - rest, num_replicas)))
    ranges = [range(low, high + 1) for low, high in zip(lowest, largest, strict=True)]
    for head in product(*ranges[:-1]):
        done = sum(n * v for n, v in zip(counts[:-1], head, strict=True))
        last = max(1, ceil_div(total - done, counts[-1]))
        vector = [*head, last]
        surplus = done + counts[-1] * last - total
        tight = all(v == 1 or surplus < n for n, v in zip(counts, vector, strict=True))
        if last <= largest[-1] and tight:
            yield vector


def shares(classes: Sequence[ReplicaClass], vector: Sequence[int], total: int) -> tuple[int, ...]:
    """Micro-batches of every replica: the class's largest share, the surplus taken off again."""
    result = {r: v for alike, v in zip(classes, vector, strict=True) for r in alike.replicas}
    surplus = sum(result.values()) - total
    for r in sorted(result, key=lambda r: (-result[r], -r))[:surplus]:
        result[r] -= 1
    return tuple(result[r] for r in sorted(result))


#: Node orders tried in a row without success near one that follows a relaxation, if that is not
#: slower than this, relative to the best plan.
PATIENCE = 100
NEAR = 1.01
#: Moves that are worth asking whether to stop.
MOVES_PER_STOP = 100
#: The first trial time is below the target by this part of it, the last ones apart by that part.
FIRST, RESOLUTION = 16, 512


@dataclass
class ByRelaxation:
    """A config with too many node orders: bounds of one replica, and the best plan after them.

    best: step times below this are of interest, that of the plan if there is one. bound_ns: no
    plan is faster.
    """

    intervals: Intervals
    placer: Placer
    gap: float
    stop: Stop
    best: int
    bound_ns: int = 0
    plan: Plan | None = None
    followed: tuple[int, ...] = ()

    @property
    def target(self) -> int:
        """Bounds of at least this close the configuration."""
        return below(self.best, self.gap)

    def follow(self, groups: tuple[int, ...]) -> None:
        """Keeps the best plan of a node order that follows these groups, if it is better."""
        tables, config = self.intervals.tables, self.intervals.tables.config
        if not groups or groups == self.followed:
            return
        self.followed = groups
        order = order_along(tables, groups)
        if not runs_order(tables.instance, config, order):
            return
        placement = self.placer.costs(order)
        classes = replica_classes(placement, config.dp)
        even = [tables.num_micro_batches // config.dp] * len(classes)
        problem = fixed_order(self.intervals, placement, classes, even)
        outcome = solve_split(problem, int(NEAR * self.best), self.gap / 2, self.stop)
        if outcome.split is None or outcome.step_time_ns is None:
            return
        shares, split = (even[0],) * config.dp, tuple(outcome.split.tolist())
        state = State(order, shares, split, outcome.step_time_ns)
        search, moves = ConfigSearch(tables, PathPool()), count()

        def stop() -> bool:
            return next(moves) % MOVES_PER_STOP == 0 and self.stop()

        state = with_stage_orders(search, state, Random(0), stop)
        for better in search.improvements(state, Random(0), PATIENCE, stop):
            state = better
        if state.step_time_ns < self.best:
            self.best = state.step_time_ns
            self.plan = even_plan(tables, state.order, np.array(state.split))

    def run(self) -> bool:
        """Whether surrogate replicas close the configuration: the target, else bisection of times.

        A high cutoff leaves many edges: what takes long below it is often refuted below lower ones.
        So a lower one comes first; where it is refuted, so is the target as a rule.
        """
        replica = SurrogateReplica(self.intervals, self.placer, classes_of(self.intervals))
        high, failed = self.target, None
        trial = high - min((high - self.bound_ns) // 4, high // FIRST)
        while self.bound_ns < high and not self.stop():
            relaxation = Relaxation(replica, trial)
            reach_ns = self._reach_ns(relaxation)
            if reach_ns is None:
                self.bound_ns = trial
            else:
                high, failed = min(trial, reach_ns), relaxation
            if failed is None:
                trial = high
            elif high - self.bound_ns <= high // RESOLUTION:
                break
            else:
                trial = high - min((high - self.bound_ns) // 2, high // FIRST)
        if failed is not None:
            self.follow(failed.groups)
            self._solve(failed)
        return self.bound_ns >= self.target

    def _reach_ns(self, relaxation: Relaxation) -> int | None:
        """From here on surrogates refute no cutoff, as far as is known; None: they do this one.

        Where windows cannot tell, the best splits of one do.
        """
        if relaxation.refutes(self.stop):
            return None
        self.bound_ns = max(self.bound_ns, relaxation.bound_ns)
        if relaxation.reach_ns < relaxation.cutoff:
            return relaxation.reach_ns
        found_ns = self._solve(relaxation)
        return None if self.bound_ns >= relaxation.cutoff else found_ns or relaxation.cutoff

    def _solve(self, relaxation: Relaxation) -> int | None:
        """Step time of the best splits of a surrogate replica if found, with a bound and a plan.

        Half of the gap is for the relaxation, which then need not be solved to its end.
        """
        problem, cutoff = relaxation.problem, min(relaxation.cutoff, self.target)
        if problem is None or self.bound_ns >= cutoff:
            return None
        # The cutoff that is above this one by the gap, see `below`.
        above = ceil(cutoff / (1 - self.gap / 2))
        outcome = solve_split(problem, above, self.gap / 2, self.stop)
        self.bound_ns = max(self.bound_ns, min(outcome.bound_ns, cutoff))
        if outcome.arcs is not None:
            self.follow(problem.order(outcome.arcs.tolist()))
        return outcome.step_time_ns


def enumerate_config(intervals: Intervals, cutoff: int, gap: float, stop: Stop) -> ConfigAnswer:
    """All orders at once where that is possible, else a relaxation, then one after the other.

    A cutoff is lowered to what is above any step time, also when the gap is off it. A configuration
    whose steps are too long to be simulated stays open.
    """
    tables = intervals.tables
    if not simulable(tables.instance, tables.config):
        return ConfigAnswer(None, None, False)
    cutoff, gap = min(cutoff, 2 * tables.longest_ns + 2), min(gap, MOST_GAP)
    if tables.by_place is not None:
        return best_by_stage(intervals, tables.by_place, cutoff, gap, stop)
    placer = Placer(tables)
    if tables.config.vpp > 1:
        return _chunked(intervals, placer, cutoff, gap, stop)
    zones = StageZones(placer)
    split = zones.split_by(cutoff)
    if split and not zones.aligned:
        return ConfigAnswer(None, None, True, cutoff)
    # The problem of all orders at even shares, or the largest of almost even ones, if the best are
    # such: unlike shares bring nothing if all replicas stand on the same nodes at every stage.
    # Stages that span zones share links with what one stage does not know of.
    even, problem = tables.instance.search.micro_batches == "even", None
    alike = even or split or lane_width(tables) == tables.config.dp
    if alike and (split or not zones.known):
        share = ceil_div(tables.num_micro_batches, tables.config.dp)
        problem = order_graph(intervals, placer, share, split)
    if problem is None or not (even or problem.num_lanes == 1):
        close = _by_order if tables.config.pp == 1 else _even if even else _uneven
        return close(intervals, placer, cutoff, gap, stop)
    if not problem.stages:
        return ConfigAnswer(None, None, True, cutoff)
    outcome, plan = solve_split(problem, cutoff, gap, stop), None
    if outcome.arcs is not None and outcome.split is not None:
        plan = even_plan(tables, problem.order(outcome.arcs.tolist()), outcome.split)
    return ConfigAnswer(plan, outcome.step_time_ns, outcome.complete, outcome.bound_ns)


def _uneven(
    intervals: Intervals, placer: Placer, cutoff: int, gap: float, stop: Stop
) -> ConfigAnswer:
    """By bounds; then lane by lane where that is exact, else one order after the other."""
    target = below(cutoff, gap)
    lanes = Uneven(intervals, placer, StageZones(placer).split_by(cutoff))
    bound_ns = 0 if lanes.exact else config_bound_ns(intervals, target, stop)
    remaining = lanes.thinned(lanes.everything(target), target, stop) if bound_ns < target else None
    if remaining is None:
        return ConfigAnswer(None, None, True, target)
    bound_ns = lanes.bound_ns(bound_ns, target, remaining, stop)
    if not lanes.exact:
        return replace(_by_order(intervals, placer, cutoff, gap, stop), bound_ns=bound_ns)
    return dealt_from_below(lanes, bound_ns, cutoff, gap, stop, remaining)


def _even(
    intervals: Intervals, placer: Placer, cutoff: int, gap: float, stop: Stop
) -> ConfigAnswer:
    """By relaxations, and if that is not enough one order after the other, unless they are many.

    Few orders are tried at once: relaxations would seldom spare that. What crosses between zones
    is in the graph of all orders alone.
    """
    target, low = below(cutoff, gap), 0
    if intervals.tables.instance.cluster.has_zones:
        low = config_bound_ns(intervals, target, stop)
    if low >= target:
        return ConfigAnswer(None, None, True, target)
    num_orders = count_orders(intervals.tables.config.nodes_used)
    relaxed = ConfigAnswer(None, None, False, low)
    if num_orders > FEW_ORDERS:
        search = ByRelaxation(intervals, placer, gap, stop, cutoff, low)
        complete = search.run()
        time_ns = None if search.plan is None else search.best
        relaxed, cutoff = ConfigAnswer(search.plan, time_ns, complete, search.bound_ns), search.best
    if relaxed.complete or num_orders > ORDER_LIMIT:
        return relaxed
    tried = _by_order(intervals, placer, cutoff, gap, stop)
    bound_ns = max(tried.bound_ns, relaxed.bound_ns)
    if tried.plan is None:
        tried = replace(relaxed, complete=tried.complete)
    return replace(tried, bound_ns=bound_ns)


def _chunked(
    intervals: Intervals, placer: Placer, cutoff: int, gap: float, stop: Stop
) -> ConfigAnswer:
    """Several chunks per device: all orders at once, device by device; else one after the other.

    The graph of devices does not know which blocks are on a device, so unlike ones (encoder and
    decoder) are left to the orders, unless these are too many.
    """
    tables = intervals.tables
    blocks = [run for run in tables.instance.workload.layer_runs if run.layer.is_block]
    few = count_orders(tables.config.nodes_used) <= ORDER_LIMIT
    if len(blocks) == 1 or not few:
        answer = best_by_device(intervals, placer, cutoff, gap, stop)
        if answer is not None:
            return answer
    if not few:
        return ConfigAnswer(None, None, False)
    return _by_order(intervals, placer, cutoff, gap, stop)


def _by_order(
    intervals: Intervals, placer: Placer, cutoff: int, gap: float, stop: Stop
) -> ConfigAnswer:
    """Every order that the target runs, with all shares that may be below the best step time.

    Each for a while, then those of least bound to the end. Of more than `ORDER_LIMIT` orders some
    alone are tried, which proves nothing. All orders of a single stage cost the same.
    """
    tables, config = intervals.tables, intervals.tables.config
    orders = islice(node_orders(config.nodes_used, ORDER_LIMIT), 1 if config.pp == 1 else None)
    unfinished = {order: 0 for order in orders if runs_order(tables.instance, config, order)}
    plan, best = None, cutoff
    for effort in (FIRST_EFFORT, None):
        waiting: dict[Order, int] = {}
        for order, bound_ns in sorted(unfinished.items(), key=lambda entry: entry[::-1]):
            if bound_ns >= below(best, gap):
                continue
            if stop():  # before the costs of an order are worked out: there may be many
                waiting[order] = bound_ns
                continue
            placement = placer.costs(order)
            classes = replica_classes(placement, config.dp)
            vectors = _share_vectors(intervals, placement, classes, below(best, gap), stop)
            for n, vector in enumerate([None] if vectors is None else vectors):
                if vector is None or (n and stop()):
                    waiting[order] = bound_ns
                    break
                problem = fixed_order(intervals, placement, classes, vector)
                outcome = solve_split(problem, best, gap, after(effort, stop))
                if outcome.split is not None and outcome.step_time_ns is not None:
                    best = outcome.step_time_ns
                    counts = shares(classes, vector, tables.num_micro_batches)
                    plan = Decisions(order, tuple(outcome.split.tolist()), counts).plan(tables)
                if not outcome.complete:
                    proved_ns = max(bound_ns, outcome.bound_ns)
                    waiting[order] = min(waiting.get(order, proved_ns), proved_ns)
        unfinished = waiting
    target = below(best, gap)
    bound_ns = min([target, *unfinished.values()])
    if config.pp > 1 and count_orders(config.nodes_used) > ORDER_LIMIT:
        bound_ns = 0
    return ConfigAnswer(plan, best if plan else None, bound_ns >= target, bound_ns)
