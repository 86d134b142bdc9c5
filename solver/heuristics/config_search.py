"""Local search within one config: layers between stages, node orders, micro-batches per replica.

It begins at plans whose stages are balanced.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from formulations.costs.placement import PlacementCosts, Placer
from formulations.costs.tables import Array, CostTables
from formulations.decisions import even_shares
from formulations.space.slots import runs_order
from solver.heuristics.balance import Balance, Split, SplitSpace, order_balance
from solver.heuristics.neighbours import (
    fair_shares,
    near_orders,
    near_shares,
    near_splits,
    permuted,
    start_orders,
    turned_orders,
)
from solver.heuristics.node_orders import Order, count_orders
from solver.heuristics.trial import OrderTrial, PathPool

#: Limits on the work of a stage, relative to the least one: more leave room for less latency.
SLACKS = (1.0, 1.05, 1.2)
#: No step takes so long, in ns; sums of a few do not overflow.
LONGEST_NS = 1 << 58
#: Part of the work of the most loaded stage from which on what follows its last backward counts.
LONG_TAIL = 0.1
#: Shares are not fitted to starts that are slower than this, relative to what is of interest.
FAR = 1.5
#: Times that split and shares are fitted to each other in turn.
FITTINGS = 3


@dataclass(frozen=True)
class State:
    """A plan of the config: node groups in node order, shares, split, simulated step time in ns."""

    order: Order
    shares: tuple[int, ...]
    split: Split
    step_time_ns: int


class ConfigStarts:
    """Plans of one configuration with balanced stages, judged. `pool`: paths, shared by configs."""

    def __init__(self, tables: CostTables, pool: PathPool) -> None:
        self.tables, self.pool = tables, pool
        self.space, self.placer = SplitSpace(tables), Placer(tables)
        self.uneven = tables.instance.search.micro_batches == "uneven"

    def runs(self, order: Order) -> bool:
        """Whether the target runs the configuration in this order of nodes."""
        return runs_order(self.tables.instance, self.tables.config, order)

    def balance(self, order: Order, shares: tuple[int, ...]) -> Balance:
        """The stages of a split of the order with these shares."""
        return order_balance(self.space, order, shares)

    def _splits(self, balance: Balance, below_ns: int) -> Array:
        """Splits [N, p + 1] that fit and whose stages all have less work than `below_ns` ns."""
        limit = balance.least_limit(below_ns)
        return self.fitting(balance, [] if limit is None else [int(limit * x) for x in SLACKS])

    def _with_tails(self, balance: Balance, placement: PlacementCosts, splits: Array) -> Array:
        """These splits or, if their tails are long, others that even out work + tail.

        Even work leaves much to a stage on a slow link, where few layers take long to exchange.
        """
        after = OrderTrial(balance, placement).after
        stages = np.arange(len(after))
        tails = after[stages, splits[:, 1:]] - after[stages, splits[:, :-1]]
        if tails.max(axis=1, initial=0).min() < LONG_TAIL * balance.work(tuple(splits[0])):
            return splits
        with_tails = Balance(self.space, balance.groups, balance.shares, after)
        evened = self._splits(with_tails, LONGEST_NS)
        return evened if len(evened) else splits

    def fitting(self, balance: Balance, limits: Sequence[int]) -> Array:
        """[N, S + 1] splits that fit, with these limits on the work of every stage."""
        candidates = [split for limit in limits if (split := balance.split(limit)) is not None]
        splits = np.array(candidates, dtype=np.int64).reshape(-1, self.tables.config.num_stages + 1)
        return splits[balance.fits(splits)]

    def best(
        self,
        balance: Balance,
        placement: PlacementCosts,
        order: Order,
        splits: Array,
        paths: bool = True,
    ) -> State:
        """The fastest of these splits; with `paths` the pool learns what limits them."""
        times, critical = OrderTrial(balance, placement).judge(splits, paths)
        self.pool.learn(critical)
        best = int(times.argmin())
        return State(order, balance.shares, tuple(splits[best].tolist()), int(times[best]))

    def start(self, order: Order, below_ns: int) -> State | None:
        """A plan of the order with balanced stages; None if none fits and works less.

        Nor is there one of an order that the target does not run.

        Balanced in work, and if gradient sync is long also in what the two take together.

        Uneven shares are fitted to the split, and the split to them, in turn.
        """
        if not self.runs(order):
            return None
        shares = even_shares(self.tables)
        balance = self.balance(order, shares)
        splits = self._splits(balance, below_ns if not self.uneven else LONGEST_NS)
        if not len(splits):
            return None
        placement = self.placer.costs(order)
        candidates = np.concatenate([splits[:1], self._with_tails(balance, placement, splits)])
        best = self.best(balance, placement, order, candidates, paths=False)
        for _ in range(FITTINGS if self.uneven and best.step_time_ns < FAR * below_ns else 0):
            fitted = self.refitted(best, placement)
            if fitted is None or fitted.step_time_ns >= best.step_time_ns:
                break
            best = fitted
        return best

    def judged(self, order: Order, shares: tuple[int, ...], split: Split) -> State | None:
        """The plan with its step time; None if it does not fit, or cannot be launched."""
        balance, splits = self.balance(order, shares), np.array([split])
        if not self.runs(order) or not balance.fits(splits)[0]:
            return None
        return self.best(balance, self.placer.costs(order), order, splits)

    def stage_times(self, state: State, placement: PlacementCosts) -> Array:
        """[p, R] forward + backward of one micro-batch."""
        starts, ends = np.array(state.split[:-1]), np.array(state.split[1:])
        groups = placement.group_of_slot.reshape(len(ends), -1)
        work = self.space.work
        times: Array = work[ends[:, None], groups] - work[starts[:, None], groups]
        return times

    def refitted(self, state: State, placement: PlacementCosts) -> State | None:
        """The state with shares that suit its split, then a split that suits these."""
        times = self.stage_times(state, placement)
        shares = fair_shares(times, self.tables.num_micro_batches)
        balance = self.balance(state.order, shares)
        old = np.array([state.split])
        splits = np.concatenate([old[balance.fits(old)], self._splits(balance, LONGEST_NS)])
        if len(splits):
            splits = self._with_tails(balance, placement, splits)
        return self.best(balance, placement, state.order, splits) if len(splits) else None

    def candidates(self, balance: Balance, state: State) -> Array:
        """Splits for an order near that of the state.

        Where its stages are alike, the numbers of layers go along with them. Else stages get
        about as much work at most as the most loaded one has now.
        """
        before = self.balance(state.order, state.shares)
        moved = permuted(before.kinds, balance.kinds, state.split)
        if moved is None:
            work = before.work(state.split)
            return self.fitting(balance, [int(work * slack) for slack in SLACKS])
        splits = np.array([moved])
        return splits[balance.fits(splits)]


Stop = Callable[[], bool]

#: Splits simulated at once in a descent.
TRIED_AT_ONCE = 16
#: Orders are followed up if their split is not slower than this, relative to the best one.
NEAR = 1.01
#: The most turns of one order.
TURNS = 64


class ConfigSearch:
    """Local search from the plans of a config. `pool`: paths of its schedule, shared by all."""

    def __init__(self, tables: CostTables, pool: PathPool) -> None:
        self.starts = ConfigStarts(tables, pool)

    @property
    def nodes_per_stage(self) -> int:
        """Nodes that a stage takes, rounded, at least 1."""
        config = self.starts.tables.config
        return max(1, round(sum(config.nodes_used) / config.pp))

    @property
    def first_orders(self) -> list[Order]:
        """Orders to start from that the target runs: of the groups side by side if there are any.

        Else the same begun at other stages.
        """
        nodes_used = self.starts.tables.config.nodes_used
        sided = [*filter(self.starts.runs, start_orders(nodes_used, self.nodes_per_stage))]
        turned = turned_orders(nodes_used, self.nodes_per_stage, TURNS) if not sided else []
        return sided or [*filter(self.starts.runs, turned)]

    def descend(self, state: State, stop: Stop) -> State:
        """No layer moved between two stages, nor micro-batch, shortens the step, unless stopped."""
        return self._descend(self.starts.placer.costs(state.order), state, stop)

    def _descend(self, placement: PlacementCosts, state: State, stop: Stop) -> State:
        state = self._best_split(placement, state, stop)
        while self.starts.uneven and not stop():
            moved = self._best_shares(placement, state)
            if moved.step_time_ns >= state.step_time_ns:
                break
            state = self._best_split(placement, moved, stop)
        return state

    def _best_shares(self, placement: PlacementCosts, state: State) -> State:
        """The state, or the fastest with one micro-batch moved between two replicas."""
        split, best = np.array([state.split]), state
        for shares in near_shares(self.starts.stage_times(state, placement), state.shares):
            balance = self.starts.balance(state.order, shares)
            if balance.fits(split)[0]:
                moved = self.starts.best(balance, placement, state.order, split)
                best = min(best, moved, key=lambda candidate: candidate.step_time_ns)
        return best

    def _best_split(self, placement: PlacementCosts, state: State, stop: Stop) -> State:
        """No single layer moved between two stages shortens the step, unless stopped."""
        trial = OrderTrial(self.starts.balance(state.order, state.shares), placement)
        self.starts.best(trial.balance, placement, state.order, np.array([state.split]))
        tried: set[Split] = set()
        while not stop():
            near = near_splits(np.array(state.split))
            near = near[trial.balance.fits(near)]
            if not len(near):
                break
            bound = self.starts.pool.bound_ns(trial, near)
            ranked = near[np.argsort(bound, kind="stable")][: (bound < state.step_time_ns).sum()]
            hopeful = [split for split in map(tuple, ranked.tolist()) if split not in tried]
            if not hopeful:
                break
            chosen = np.array(hopeful[:TRIED_AT_ONCE])
            moved = self.starts.best(trial.balance, placement, state.order, chosen)
            tried.update(hopeful[:TRIED_AT_ONCE])
            state = min(state, moved, key=lambda candidate: candidate.step_time_ns)
        return state

    def improvements(
        self, state: State, random: Random, patience: int, stop: Stop
    ) -> Iterator[State]:
        """The best plan so far near a state, after every node order tried.

        Ends when so many tries in a row gave no faster one.
        """
        state = self.descend(state, stop)
        yield state
        if count_orders(self.starts.tables.config.nodes_used) == 1:
            return
        seen, failures = {state.order}, 0
        near = near_orders(state.order, self.nodes_per_stage, random)
        while failures < patience and not stop():
            order = next(near)
            failures += 1
            new = order not in seen and self.starts.runs(order)
            tried = self._tried(order, state, stop) if new else None
            seen.add(order)
            if tried is not None and tried.step_time_ns <= state.step_time_ns:
                failures = failures if tried.step_time_ns == state.step_time_ns else 0
                state = tried
                near = near_orders(state.order, self.nodes_per_stage, random)
            yield state

    def _tried(self, order: Order, state: State, stop: Stop) -> State | None:
        """The best plan of another order, if that looks worth a descent."""
        balance = self.starts.balance(order, state.shares)
        splits = self.starts.candidates(balance, state)
        if not len(splits):
            return None
        trial = OrderTrial(balance, self.starts.placer.costs(order))
        if self.starts.pool.bound_ns(trial, splits).min() > NEAR * state.step_time_ns:
            return None
        candidate = self.starts.best(balance, trial.placement, order, splits)
        fitted = self.starts.refitted(candidate, trial.placement) if self.starts.uneven else None
        if fitted is not None and fitted.step_time_ns < candidate.step_time_ns:
            candidate = fitted
        if candidate.step_time_ns > NEAR * state.step_time_ns:
            return None
        return self._descend(trial.placement, candidate, stop)
