"""Step time of one configuration: its split, node order and shares at once, each free or given.

Sets. Devices d < p; virtual stages k < S, stage k on device k mod p; replicas r < R = dp; slots
s = d R + r; layers l < L; node groups j; operations o: forward, backward, weight gradients where
the schedule splits them off.
Parameters (CostTables, Placer). Operation and optimizer ns [l, j]; static, activation and workspace
bytes [l], and those of activations that wait for weight gradients; capacity bytes [j]; transfers,
sync and gather as the node order makes them.
Parts, each free or given. Split: which layers a stage has (`layer_to_stage`). Order: which group
owns a slot (`node_order`). Shares: micro-batches of a replica (`microbatches`).
Variables, ns. step_time; tail[d], from the last operation of device d to the end of the step if
that waits for it; times[o][k][r], optimizer[d]; tied, the later finish of the tied devices;
way[d][r][w], literal. No variable but step_time grows with the number of micro-batches: narrow
ranges are what bounds the error of an engine that counts in floats.
Objective. min step_time.
Constraints.
(1) Stage times: times[o][k][r] >= the stage's sum of its ns on the owner of its slot; the optimizer
    alike, over all chunks and slots of the device.
    With one chunk per device backward passes take again[k][r] longer, for what is recomputed: for
    every group that may own the slot, and every share, again >= the time of every run of layers
    [a, b) that the stage holds, begun[k][a] and not begun[k+1][b-1] (`stage_times`). With several,
    for every group and way, again >= the sum of its ns over the layers of k, if way[d][r][w].
(2) Memory: with one chunk per device the stage holds no run of layers without room, bytes being
    compared while building. With several, for every slot, group and fullest moment of its device
    that the share implies (`schedules.held`: micro-batches h of every chunk, n that wait), if
    way[d][r][w], fixed + sum over its chunks of static + h * activation[w] + n * waiting,
    + largest workspace[w] <= capacity. Workspace v of a run [a, b) of layers counts if a chunk k
    meets it: workspace >= v (begun[k][b-1] - begun[k+1][a]).
(3) Tail: tail[d] >= sync[d] + optimizer[d] + gather[d]; with tied embeddings, devices 0 and p-1
    instead: tied >= optimizer + gather of both, tail[d] >= sync[d] + embedding + tied.
    step_time >= tail[d].
(4) Budget: step_time <= the step time that the limits allow; >= a bound that is known.
(5) Cuts: step_time >= tail[d] + every known path to the last operation of d, for every replica
    whose share is the path's micro-batches, or more where paths hold for these too
    (`formulations.decisions`). Added while solving.
(22) Exclusion: at least one literal differs from those of a plan that is judged already.
(25) With several chunks per device exactly one way[d][r][w]; replicas that are alike share theirs.
Assumptions. All replicas share one split; even shares need dp to divide the number of
micro-batches. Every term is monotone in every time, so lower bounds suffice: at a minimum, with all
cuts, step_time is the simulated step time, in whole nanoseconds. No step takes longer than 2^52 ns.
Left out. Paths that nobody has added: without them the optimum is a lower bound. Idle nodes: the
configuration says how many nodes of each group are used.
Size. O(S R J) variables and O(S R J L) rows beside the parts', O(C R) cut rows of O(S) terms.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain, pairwise

import numpy as np

from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import CostTables
from formulations.decisions import ALL_FREE, Decisions, Given, PathCut
from formulations.models.layer_to_stage import Split, possible_runs
from formulations.models.microbatches import Shares
from formulations.models.model import Literal, Model, Pairs, Term, negated, total_of, weighted
from formulations.models.node_order import order_part
from formulations.models.stage_times import StageTimes
from formulations.schedules.registry import SCHEDULES


class OneConfig:
    """The model of one configuration, see the header; `step_time` is minimised.

    model: where to build it; it minimises nothing if that is one alternative of several.
    """

    def __init__(self, model: Model, tables: CostTables, given: Given = ALL_FREE) -> None:
        self.model, self.tables = model, tables
        self.order = order_part(model, tables, given)
        self.shares = Shares(model, tables, self.order, given)
        costs, limit_ns = StageCosts(tables), given.max_step_time_ns
        if given.boundaries is None:
            fewest = min((choices[0] for choices in self.shares.choices if choices), default=1)
            runs = possible_runs(costs, fewest, limit_ns)
        else:
            runs = [np.array([run], dtype=np.int64) for run in pairwise(given.boundaries)]
        self.split = Split(model, tables, runs)
        self.step_time = model.time("step_time")
        self.cuts: set[PathCut] = set()
        self._times = StageTimes(model, costs, self.split, self.order, self.shares)
        self.tail = self._tails()
        if limit_ns is not None:
            self.limit_step_time(limit_ns)
        if model.chosen is None:
            model.minimize(self.step_time)

    def _tails(self) -> list[Term]:
        """(3) [p] from the last operation of a device to the end of the step that waits for it."""
        last = self.tables.config.pp - 1
        finish = [
            total_of(self._times.optimizer(d), self.order.gather(d, self.split))
            for d in range(last + 1)
        ]
        if self.tables.tied:
            ends = [finish[0], finish[last]]
            upper = max(map(self.model.upper, ends))
            tied = self.model.maximum(3, [((), end) for end in ends], upper, "tied")
            finish[0] = finish[last] = total_of(self.order.embedding(), tied)
        sums = [total_of(self.order.sync(d, self.split), finish[d]) for d in range(last + 1)]
        tails = [
            self.model.bounded(3, term, self.model.upper(term), f"tail_{d}")
            for d, term in enumerate(sums)
        ]
        for tail in tails:
            self.model.at_most(3, tail, self.step_time)
        return tails

    def limit_step_time(self, limit_ns: int) -> None:
        """(4) Allow only plans with this step time or a smaller one."""
        self.model.within(4, self.step_time, None, limit_ns)

    def raise_step_time(self, bound_ns: int) -> None:
        """(4) Tell the engine a proved lower bound; it excludes no plan."""
        self.model.within(4, self.step_time, bound_ns, None)

    def add_cut(self, cut: PathCut) -> bool:
        """(5) Bound the step by a path for every replica it holds for; False if known already."""
        if cut in self.cuts:
            return False
        self.cuts.add(cut)
        counts = [*chain.from_iterable(cut.operations), 1, 1]
        for r, reached, more in self._cut_replicas(cut):
            times = [row[r] for row in chain.from_iterable(self._times.times)]
            path = weighted(counts, [*times, self._sends(cut, r), self.tail[cut.device]])
            self.model.at_most(5, path, self.step_time, reached, negated(more))
        return True

    def _cut_replicas(self, cut: PathCut) -> Iterator[tuple[int, Literal, Literal]]:
        """Replicas that a path may hold for: if they reach its micro-batches, and have no more.

        Where it holds for larger shares too, the first that can reach it of replicas with equal
        columns stands for all: their free shares are in descending order. So none has too many.
        """
        prefixes = SCHEDULES[self.tables.config.schedule].prefixes
        columns: set[Hashable] = set()
        for r in range(self.tables.config.dp):
            reached = self.shares.at_least(r, cut.micro_batches)
            more = 0 if prefixes else self.shares.at_least(r, cut.micro_batches + 1)
            column = self.order.column(r)
            never = isinstance(reached, int) and not reached
            if not (never or column in columns or (isinstance(more, int) and more)):
                columns.update({column} if prefixes else ())
                yield r, reached, more

    def _sends(self, cut: PathCut, replica: int) -> Term:
        counts = cut.sends(self.tables.instance.search.blocking_sends)
        times = [self.order.send(k, replica, self.split) for k in range(len(counts))]
        return weighted(counts, times)

    def assignment(self, decisions: Decisions) -> Pairs:
        """The literals that stand for decisions."""
        return chain(
            self.split.assignment(decisions.boundaries),
            self.order.assignment(decisions.order),
            self.shares.assignment(decisions.micro_batches),
        )

    def extract(self, values: Sequence[float]) -> Decisions | None:
        """The decisions in an engine's solution; None if it has none.

        Literals are rounded, unless they are fractional, and must be what the decisions make them.
        """
        solution = self.model.solution(values)
        decisions = Decisions(
            self.order.extract(solution),
            self.split.extract(solution),
            self.shares.extract(solution),
        )
        return decisions if solution.stands(self.assignment(decisions)) else None

    def exclude(self, decisions: Decisions) -> None:
        """(22) Leave out decisions that are judged already."""
        self.model.exclude(22, self.assignment(decisions))
