"""Local search within one config: layers between stages, node orders, micro-batches per replica.

It begins at plans whose stages are balanced. Below: orders to start from, and orders, splits and
shares near others.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice, pairwise, permutations
from random import Random

import numpy as np

from formulations.costs.tables import Array, CostTables
from solver.heuristics.balance import Balance, Kinds, Order, Shares, Split, SplitSpace
from solver.heuristics.node_orders import count_orders, node_orders
from solver.heuristics.trial import OrderTrial, PathPool
from solver.interrupt import Stop

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
#: Splits simulated at once in a descent.
TRIED_AT_ONCE = 16
#: Orders are followed up if their split is not slower than this, relative to the best one.
NEAR = 1.01
#: The most turns of one order.
TURNS = 64


@dataclass(frozen=True)
class State:
    """A plan of the config: node groups in node order, shares, split, simulated step time in ns."""

    order: Order
    shares: Shares
    split: Split
    step_time_ns: int


def faster_of(first: State, second: State | None) -> State:
    """The second if there is one and it takes less time, else the first."""
    return first if second is None or second.step_time_ns >= first.step_time_ns else second


class ConfigSearch:
    """Local search within a config, from plans with balanced stages.

    pool: paths of its schedule, shared by all configs that have it.
    """

    def __init__(self, tables: CostTables, pool: PathPool) -> None:
        self.space, self.pool = SplitSpace(tables), pool
        self.config = tables.config
        self._uneven = tables.instance.search.micro_batches == "uneven"

    @property
    def nodes_per_stage(self) -> int:
        """Nodes that a stage takes, rounded, at least 1."""
        return max(1, round(sum(self.config.nodes_used) / self.config.pp))

    @property
    def first_orders(self) -> list[Order]:
        """Orders to start from that the target runs: of the groups side by side if there are any.

        Else the same begun at other stages.
        """
        nodes_used = self.config.nodes_used
        sided = [*filter(self.space.runs, start_orders(nodes_used))]
        turned = turned_orders(nodes_used, self.nodes_per_stage, TURNS) if not sided else []
        return sided or [*filter(self.space.runs, turned)]

    # Starts

    def start(self, order: Order, below_ns: int) -> State | None:
        """A plan of the order with balanced stages; None if none fits and works less.

        Nor is there one of an order that the target does not run.

        Balanced in work, and if gradient sync is long also in what the two take together.

        Uneven shares are fitted to the split, and the split to them, in turn.
        """
        if not self.space.runs(order):
            return None
        trial = OrderTrial(self.space, order)
        splits = self._splits(trial.balance, below_ns if not self._uneven else LONGEST_NS)
        if not len(splits):
            return None
        candidates = np.concatenate([splits[:1], self._with_tails(trial, splits)])
        best = self._best(trial, candidates, paths=False)
        for _ in range(FITTINGS if self._uneven and best.step_time_ns < FAR * below_ns else 0):
            fitted = faster_of(best, self._refitted(trial, best))
            if fitted is best:
                break
            best = fitted
        return best

    def judged(self, order: Order, shares: Shares, split: Split) -> State | None:
        """The plan with its step time; None if it does not fit, or cannot be launched."""
        trial = OrderTrial(self.space, order, shares)
        if not self.space.runs(order) or not trial.balance.takes(split):
            return None
        return self._best(trial, np.array([split]))

    def _best(self, trial: OrderTrial, splits: Array, paths: bool = True) -> State:
        """The fastest of these splits; with `paths` the pool learns what limits them."""
        times, critical = trial.judge(splits, paths)
        self.pool.learn(critical)
        best = int(times.argmin())
        split = tuple(splits[best].tolist())
        return State(trial.order, trial.balance.shares, split, int(times[best]))

    def _fitting(self, balance: Balance, limits: Sequence[int]) -> Array:
        """[N, S + 1] splits that fit, with these limits on the work of every stage."""
        candidates = [split for limit in limits if (split := balance.split(limit)) is not None]
        splits = np.array(candidates, dtype=np.int64).reshape(-1, self.config.num_stages + 1)
        return splits[balance.fits(splits)]

    def _splits(self, balance: Balance, below_ns: int) -> Array:
        """Splits [N, p + 1] that fit and whose stages all have less work than `below_ns` ns."""
        limit = balance.least_limit(below_ns)
        return self._fitting(balance, [] if limit is None else [int(limit * x) for x in SLACKS])

    def _with_tails(self, trial: OrderTrial, splits: Array) -> Array:
        """These splits or, if their tails are long, others that even out work + tail.

        Even work leaves much to a stage on a slow link, where few layers take long to exchange.
        """
        balance, after = trial.balance, trial.after
        stages = np.arange(len(after))
        tails = after[stages, splits[:, 1:]] - after[stages, splits[:, :-1]]
        if tails.max(axis=1, initial=0).min() < LONG_TAIL * balance.work(tuple(splits[0])):
            return splits
        with_tails = Balance(self.space, balance.groups, balance.shares, after)
        evened = self._splits(with_tails, LONGEST_NS)
        return evened if len(evened) else splits

    def _refitted(self, trial: OrderTrial, state: State) -> State | None:
        """The state with shares that suit its split, then a split that suits these."""
        shares = fair_shares(trial.stage_times(state.split), self.space.tables.num_micro_batches)
        trial, old = trial.with_shares(shares), np.array([state.split])
        fitting = old[trial.balance.fits(old)]
        splits = np.concatenate([fitting, self._splits(trial.balance, LONGEST_NS)])
        return self._best(trial, self._with_tails(trial, splits)) if len(splits) else None

    # Descents

    def descend(self, state: State, stop: Stop, trial: OrderTrial | None = None) -> State:
        """No single layer moved between two stages shortens the step, unless stopped.

        trial: of its order and shares, if there is one.
        """
        trial = trial or OrderTrial(self.space, state.order, state.shares)
        self._best(trial, np.array([state.split]))
        tried: set[Split] = set()
        while not stop():
            near = near_splits(np.array(state.split))
            near = near[trial.balance.fits(near)]
            if not len(near):
                break
            bound = self.pool.bound_ns(trial, near)
            ranked = near[np.argsort(bound, kind="stable")][: (bound < state.step_time_ns).sum()]
            hopeful = [split for split in map(tuple, ranked.tolist()) if split not in tried]
            if not hopeful:
                break
            state = faster_of(state, self._best(trial, np.array(hopeful[:TRIED_AT_ONCE])))
            tried.update(hopeful[:TRIED_AT_ONCE])
        return state

    # Orders near a state

    def improvements(
        self, state: State, random: Random, patience: int, stop: Stop
    ) -> Iterator[State]:
        """The best plan so far near a state, after every node order tried.

        Ends when so many tries in a row gave no faster one.
        """
        state = self.descend(state, stop)
        yield state
        if count_orders(self.config.nodes_used) == 1:
            return
        seen, failures = {state.order}, 0
        near = near_orders(state.order, self.nodes_per_stage, random)
        while failures < patience and not stop():
            order = next(near)
            failures += 1
            new = order not in seen and self.space.runs(order)
            tried = self._tried(order, state, stop) if new else None
            seen.add(order)
            if tried is not None and tried.step_time_ns <= state.step_time_ns:
                failures = failures if tried.step_time_ns == state.step_time_ns else 0
                state = tried
                near = near_orders(state.order, self.nodes_per_stage, random)
            yield state

    def _tried(self, order: Order, state: State, stop: Stop) -> State | None:
        """The best plan of another order, if that looks worth a descent."""
        trial = OrderTrial(self.space, order, state.shares)
        splits = self._moved(trial.balance, state)
        worst_ns = NEAR * state.step_time_ns
        if not len(splits) or self.pool.bound_ns(trial, splits).min() > worst_ns:
            return None
        candidate = self._best(trial, splits)
        if self._uneven:
            candidate = faster_of(candidate, self._refitted(trial, candidate))
        if candidate.step_time_ns > worst_ns:
            return None
        return self.descend(candidate, stop, trial.with_shares(candidate.shares))

    def _moved(self, balance: Balance, state: State) -> Array:
        """Splits for an order near that of the state.

        Where its stages are alike, the numbers of layers go along with them. Else stages get
        about as much work at most as the most loaded one has now.
        """
        before = self.space.balance(state.order, state.shares)
        moved = permuted(before.kinds, balance.kinds, state.split)
        if moved is None:
            work = before.work(state.split)
            return self._fitting(balance, [int(work * slack) for slack in SLACKS])
        splits = np.array([moved])
        return splits[balance.fits(splits)]


# Orders to start from; orders, splits and shares near others


#: Orders of the runs that are tried; up to so many orders of the nodes all are tried.
MOST_STARTS = 24
FEW_ORDERS = 60


def start_orders(nodes_used: Sequence[int]) -> list[Order]:
    """Every group in one run, the runs in every order."""
    used = [j for j, count in enumerate(nodes_used) if count]
    orders = islice(permutations(used), MOST_STARTS)
    return [tuple(j for j in order for _ in range(nodes_used[j])) for order in orders]


def turned_orders(nodes_used: Sequence[int], per_stage: int, max_turns: int) -> list[Order]:
    """All orders if they are few; else the start orders, begun at `max_turns` stages at most.

    per_stage: nodes that a stage takes, at least 1.
    """
    if count_orders(nodes_used) <= FEW_ORDERS:
        return list(node_orders(nodes_used, FEW_ORDERS))
    step = max(per_stage, -(-sum(nodes_used) // max_turns))
    starts = start_orders(nodes_used)
    turned = (order[i:] + order[:i] for order in starts for i in range(0, len(order), step))
    return list(dict.fromkeys(turned))


def _swapped(order: Order, i: int, j: int, size: int) -> Order:
    """Two blocks of `size` nodes exchanged; i + size <= j."""
    first, second = order[i : i + size], order[j : j + size]
    return order[:i] + second + order[i + size : j] + first + order[j + size :]


def near_orders(order: Order, per_stage: int, random: Random) -> Iterator[Order]:
    """Without end: orders with two nodes, two blocks or one block moved, or turned round.

    Blocks are as long as a stage or a run of equal nodes; they start at stages or runs.
    """
    size = len(order)
    runs = [0]
    for _, run in groupby(order):
        runs.append(runs[-1] + len(list(run)))
    marks = sorted({*runs[:-1], *range(0, size, per_stage)})
    lengths = [1, per_stage, *(b - a for a, b in pairwise(runs))]
    while True:
        kind = random.random()
        length = min(random.choice(lengths), size)
        if kind < 0.45:
            i, j = sorted((random.randrange(size), random.randrange(size)))
            if order[i] != order[j]:
                yield _swapped(order, i, j, 1)
        elif kind < 0.7:
            i, j = sorted((random.choice(marks), random.choice(marks)))
            if i + length <= j and j + length <= size:
                yield _swapped(order, i, j, length)
        elif kind < 0.98:
            # a block taken out at i and put back at `to` of the rest
            i, to = (min(random.choice(marks), size - length) for _ in range(2))
            block, rest = order[i : i + length], order[:i] + order[i + length :]
            yield rest[:to] + block + rest[to:]
        else:
            yield order[::-1]


def near_splits(split: Array) -> Array:
    """[N, p + 1] splits in which one layer moved between two of the p stages."""
    p = len(split) - 1
    first, last = np.triu_indices(p, 1)
    inside = (np.arange(p + 1) > first[:, None]) & (np.arange(p + 1) <= last[:, None])
    moves = np.concatenate([split + inside, split - inside])
    return moves[(np.diff(moves, axis=1) > 0).all(axis=1)]


def permuted(before: Kinds, after: Kinds, split: Split) -> Split | None:
    """The split whose stages take their numbers of layers along; None if the kinds differ."""
    if sorted(before) != sorted(after):
        return None
    sizes: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for kinds, (start, end) in zip(before, pairwise(split), strict=True):
        sizes.setdefault(kinds, []).append(end - start)
    return tuple(accumulate((sizes[kinds].pop(0) for kinds in after), initial=0))


def fair_shares(stage_times: Array, micro_batches: int) -> tuple[int, ...]:
    """Shares, at least 1 each, of least largest estimate over the replicas.

    stage_times: [p, R] forward + backward of one micro-batch, per stage and replica. With m
    micro-batches a replica is taken to need all its stages once and m - 1 times its slowest.
    """
    latency, slowest = stage_times.sum(axis=0), stage_times.max(axis=0)
    times = range(int((latency + micro_batches * slowest).max()))
    enough = bisect_left(
        times, True, key=lambda ns: bool(_most(latency, slowest, ns).sum() >= micro_batches)
    )
    shares = _most(latency, slowest, enough)
    for _ in range(int(shares.sum()) - micro_batches):
        ends = np.where(shares > 1, latency + (shares - 1) * slowest, -1)
        shares[len(ends) - 1 - int(ends[::-1].argmax())] -= 1
    return tuple(shares.tolist())


def _most(latency: Array, slowest: Array, time_ns: int) -> Array:
    """[R] micro-batches that every replica finishes within the time; 1 at least."""
    micro_batches: Array = np.maximum(1, (time_ns - latency) // slowest + 1)
    return micro_batches
