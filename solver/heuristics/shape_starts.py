"""Plans of one shape whose stages are balanced, and what they take."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formulations.costs.placement import PlacementCosts, Placer
from formulations.costs.tables import Array, CostTables
from formulations.decisions import even_shares
from formulations.slot_degrees import runs_order
from solver.heuristics.balance import Balance
from solver.heuristics.choose import group_of_slot
from solver.heuristics.fair_shares import fair_shares
from solver.heuristics.moves import permuted
from solver.heuristics.node_orders import Order
from solver.heuristics.pool import PathPool
from solver.heuristics.split_space import SplitSpace
from solver.heuristics.stages import Split
from solver.heuristics.trial import OrderTrial

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
    """A plan of the shape: node groups in node order, shares, split, simulated step time in ns."""

    order: Order
    shares: tuple[int, ...]
    split: Split
    step_time_ns: int


class ShapeStarts:
    """Plans of one shape with balanced stages, judged. `pool`: paths, shared by shapes."""

    def __init__(self, tables: CostTables, pool: PathPool) -> None:
        self.tables, self.pool = tables, pool
        self.space, self.placer = SplitSpace(tables), Placer(tables)
        self.uneven = tables.instance.search.micro_batches == "uneven"

    def runs(self, order: Order) -> bool:
        """Whether the target runs the shape in this order of nodes."""
        return runs_order(self.tables.instance, self.tables.shape, order)

    def balance(self, order: Order, shares: tuple[int, ...]) -> Balance:
        """The stages of a split of the order with these shares."""
        shape = self.tables.shape
        groups = group_of_slot(self.tables, order).reshape(shape.pp, -1)
        return Balance(self.space, np.tile(groups, (shape.vpp, 1)), shares)

    def _splits(self, balance: Balance, most: int) -> Array:
        """Splits [N, p + 1] that fit and whose stages all have less work than `most` ns."""
        limit = balance.least_limit(most)
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
        whole = Balance(self.space, balance.groups, balance.shares, after)
        found = self._splits(whole, LONGEST_NS)
        return found if len(found) else splits

    def fitting(self, balance: Balance, limits: Sequence[int]) -> Array:
        """[N, S + 1] splits that fit, with these limits on the work of every stage."""
        known = [split for limit in limits if (split := balance.split(limit)) is not None]
        found = np.array(known, dtype=np.int64).reshape(-1, self.tables.shape.num_stages + 1)
        return found[balance.fits(found)]

    def best(
        self,
        balance: Balance,
        placement: PlacementCosts,
        order: Order,
        splits: Array,
        paths: bool = True,
    ) -> State:
        """The fastest of these splits; with `paths` the pool learns what limits them."""
        times, found = OrderTrial(balance, placement).judge(splits, paths)
        self.pool.learn(found)
        best = int(times.argmin())
        return State(order, balance.shares, tuple(splits[best].tolist()), int(times[best]))

    def start(self, order: Order, most: int) -> State | None:
        """A plan of the order with balanced stages; None if none fits or works less than `most`.

        Nor is there one of an order that the target does not run.

        Balanced in work, and if gradient sync is long also in what the two take together.

        Uneven shares are fitted to the split, and the split to them, in turn.
        """
        if not self.runs(order):
            return None
        shares = even_shares(self.tables)
        balance = self.balance(order, shares)
        splits = self._splits(balance, most if not self.uneven else LONGEST_NS)
        if not len(splits):
            return None
        placement = self.placer.costs(order)
        found = np.concatenate([splits[:1], self._with_tails(balance, placement, splits)])
        best = self.best(balance, placement, order, found, paths=False)
        for _ in range(FITTINGS if self.uneven and best.step_time_ns < FAR * most else 0):
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
