"""Step time of one shape: the part that all MILP models share.

Sets. Stages k < p; replicas r < R = dp; slots s = k R + r; layers l < L; node groups j.
Parameters (CostTables, Placer). Forward, backward and optimizer ns [l, j]; static, activation and
workspace bytes [l]; capacity bytes [j]; transfers, sync and gather as the node order makes them.
Parts, each fixed or free. Split: which layers a stage has (layer_to_stage). Order: which group
owns a slot (node_order). Shares: micro-batches of a replica (microbatches).
Variables, continuous, ns. step_time; tail[k], from the last backward of stage k to the end of the
step if that waits for it; forward[k][r], backward[k][r], optimizer[k]; tied, the later finish of
the tied stages. No variable but step_time grows with the number of micro-batches: narrow ranges
are what bounds the error of an engine that counts in floats.
Objective. min step_time.
Constraints.
(1) Stage times: for every group j that may own the slot, forward[k][r] >= the stage's sum of
    forward ns on j, less what j may cost more than the owner (`big_m.choice_slack`); backward,
    optimizer alike (the optimizer over all slots of the stage).
(2) Memory: for every slot, group j and number h of micro-batches in flight that the share
    implies, and every layer a: a stage that starts at a or before ends where [a, end) still fits,
    begun[k][a] - begun[k+1][end] <= 1 - owner[s, j] + 1 - reached. Bytes are compared while
    building, as whole numbers; they do not enter the model.
(3) Tail: tail[k] >= sync[k] + optimizer[k] + gather[k]; with tied embeddings, stages 0 and p-1
    instead: tied >= optimizer + gather of both, tail[k] >= sync[k] + embedding + tied.
    step_time >= tail[k].
(4) Budget: step_time <= the step time that the limits allow.
(5) Cuts: step_time >= tail[k] + every known path to the last backward of k, for every replica
    whose share reaches the path's micro-batches (`formulations.paths`), else less the longest
    such path over all splits. Added while solving.
(22) Exclusion: at least one binary variable differs from those of a plan that is judged already.
Assumptions. All replicas share one split. Every term is monotone in every time, so lower bounds
suffice: at a minimum, with all cuts, step_time is the simulated step time. Step times are whole
nanoseconds: the bounds of step_time leave half of one, so that no plan lies on their edge.
Left out. Paths that nobody has added: without them the optimum is a lower bound.
Size. O(p R J) variables and O(p R J L) rows beside the parts', O(C R) cut rows of O(p) terms.
"""

from collections.abc import Hashable, Sequence

import numpy as np
import pulp

from formulations.costs.tables import Array, CostTables
from formulations.decisions import Decisions
from formulations.milp.big_m import largest_value, longest_path
from formulations.milp.choices import chosen, of_layers
from formulations.milp.parts import Assignment, Order, Shares, Split
from formulations.milp.runs import bytes_needed
from formulations.milp.terms import (
    Linear,
    Literal,
    duration,
    maximum,
    require_at_most,
    total_of,
    weighted,
)
from formulations.paths import PathCut
from formulations.schedules import in_flight

HALF_NS = 0.5

#: A literal that is further from 0 and from 1 is neither.
FRACTION = 1e-5


class Built:
    """A native model with its variables: see the header for the constraints.

    `model` is the native model; `step_time` is its objective, `tail` what follows each stage.
    """

    def __init__(
        self,
        model: pulp.LpProblem,
        tables: CostTables,
        split: Split,
        order: Order,
        shares: Shares,
        max_step_time_ns: int | None = None,
    ) -> None:
        self.model = model
        self.tables = tables
        self.split = split
        self.order = order
        self.shares = shares
        self.step_time = duration(model, "step_time")
        model.setObjective(self.step_time)
        self.cuts: set[PathCut] = set()
        self.forward = self._stage_times("forward", tables.forward_ns)
        self.backward = self._stage_times("backward", tables.backward_ns)
        self._add_memory()
        self.tail = self._tails()
        if max_step_time_ns is not None:
            self.limit_step_time(max_step_time_ns)

    @property
    def _stages(self) -> range:
        return range(self.tables.shape.pp)

    @property
    def _replicas(self) -> range:
        return range(self.tables.shape.dp)

    def _chosen(self, table: Array, stage: int, replica: int) -> tuple[list[Linear], int]:
        """(1) Terms of which the largest is the time of a stage on the owner of its slot.

        And a number that none of them exceeds.
        """
        owners = dict(self.order.types(stage * self.tables.shape.dp + replica))
        costs = of_layers(self.split, stage, {j: table[:, j] for j in owners})
        return chosen(costs, owners), costs.largest

    def _stage_times(self, name: str, table: Array) -> list[list[Linear]]:
        """(1) [p][R] forward or backward times; equal columns share their variables."""
        rows = []
        for k in self._stages:
            kept: dict[Hashable, Linear] = {}
            for r in self._replicas:
                column = self.order.column(r)
                if column not in kept:
                    terms, upper = self._chosen(table, k, r)
                    kept[column] = maximum(self.model, 1, terms, f"{name}_{k}_{r}", upper)
            rows.append([kept[self.order.column(r)] for r in self._replicas])
        return rows

    def _add_memory(self) -> None:
        """(2) Every slot, for every group and number in flight that may occur."""
        shape = self.tables.shape
        for k in self._stages:
            ends: dict[tuple[int, int], Array] = {}
            for r in self._replicas:
                held_before = 0
                for m in self.shares.choices(r):
                    held = in_flight(shape.schedule, shape.pp, k, m)
                    if held == held_before:
                        continue
                    held_before = held
                    for j, owner in self.order.types(k * shape.dp + r):
                        if (held, j) not in ends:
                            ends[held, j] = _fitting_ends(self.tables, held, j)
                        self._fit(k, ends[held, j], owner, self.shares.at_least(r, m))

    def _fit(self, stage: int, ends: Array, owner: Literal, reached: Literal) -> None:
        """(2) One group and number in flight; of equal ends the last start implies the others."""
        slack = weighted([-1, -1], [owner, reached])
        for start in np.flatnonzero(np.diff(ends, append=-1)).tolist():
            end = int(ends[start])
            if end == self.tables.num_layers:
                continue
            left = weighted(
                [1, -1], [self.split.begun(stage, start), self.split.begun(stage + 1, end)]
            )
            if not (isinstance(left, int) and left <= 0):
                require_at_most(self.model, 2, left, weighted([1, 1], [slack, 2]))

    def _tails(self) -> list[Linear]:
        """(3) [p] from the last backward of a stage to the end of the step that waits for it."""
        last = self.tables.shape.pp - 1
        tied = (0, last) if self.tables.embedding_bytes else ()
        finish = [
            total_of(self._optimizer(k), self.order.gather(k, self.split)) for k in self._stages
        ]
        if tied:
            upper = max(largest_value(finish[k]) for k in tied)
            both = maximum(self.model, 3, [finish[0], finish[last]], "tied", upper)
            finish[0] = finish[last] = total_of(self.order.embedding(), both)
        sums = [total_of(self.order.sync(k, self.split), finish[k]) for k in self._stages]
        tails = [self._named(f"tail_{k}", term) for k, term in enumerate(sums)]
        for tail in tails:
            require_at_most(self.model, 3, tail, self.step_time)
        return tails

    def _named(self, name: str, term: Linear) -> Linear:
        """A variable that is at least a term; an int if that is one."""
        if isinstance(term, int):
            return term
        variable = duration(self.model, name, largest_value(term))
        require_at_most(self.model, 3, term, variable)
        return variable

    def _optimizer(self, stage: int) -> Linear:
        """(1) Optimizer of a stage on the slowest owner of its slots."""
        table, dp = self.tables.optimizer_ns, self.tables.shape.dp
        kept: dict[Hashable, tuple[list[Linear], int]] = {}
        for r in self._replicas:
            owners = self.order.types(stage * dp + r)
            certain = len(owners) == 1
            kept[owners[0][0] if certain else -1 - r] = self._chosen(table, stage, r)
        terms = [term for own, _ in kept.values() for term in own]
        upper = max(upper for _, upper in kept.values())
        return maximum(self.model, 1, terms, f"optimizer_{stage}", upper)

    def limit_step_time(self, limit_ns: int) -> None:
        """(4) Allow only plans with this step time or a smaller one."""
        known = self.step_time.upBound
        limit = limit_ns + HALF_NS
        self.step_time.upBound = limit if known is None else min(known, limit)

    def raise_step_time(self, bound_ns: int) -> None:
        """Tell the engine a proved lower bound; it excludes no plan."""
        self.step_time.lowBound = max(self.step_time.lowBound, bound_ns - HALF_NS)

    def add_cut(self, cut: PathCut) -> bool:
        """(5) Bound the step by a path for every replica that reaches it; False if known already.

        Of replicas with equal columns the first that can reach it stands for all: their free
        shares are in descending order.
        """
        if cut in self.cuts:
            return False
        self.cuts.add(cut)
        columns: set[Hashable] = set()
        for r in self._replicas:
            reached = self.shares.at_least(r, cut.micro_batches)
            column = self.order.column(r)
            if column in columns or (isinstance(reached, int) and not reached):
                continue
            columns.add(column)
            slack = 0 if isinstance(reached, int) else self._longest(cut, r)
            path = weighted([1, slack, -slack], [self._path(cut, r), reached, 1])
            require_at_most(self.model, 5, total_of(path, self.tail[cut.stage]), self.step_time)
        return True

    def _sends(self, cut: PathCut, replica: int) -> Linear:
        counts = cut.sends(self.tables.instance.search.blocking_sends)
        return weighted(
            counts, [self.order.send(k, replica, self.split) for k in range(len(counts))]
        )

    def _path(self, cut: PathCut, replica: int) -> Linear:
        counts = [*cut.forward, *cut.backward, 1]
        times = [row[replica] for row in (*self.forward, *self.backward)]
        return weighted(counts, [*times, self._sends(cut, replica)])

    def _longest(self, cut: PathCut, replica: int) -> int:
        """Longest that the path may be."""
        tables, stages = self.tables, []
        for k in self._stages:
            times = cut.forward[k] * tables.forward_ns + cut.backward[k] * tables.backward_ns
            slot = k * tables.shape.dp + replica
            columns = [times[:, j] for j, _ in self.order.types(slot)]
            stages.append((self.split.intervals(k), columns))
        return longest_path(stages, tables.num_layers) + largest_value(self._sends(cut, replica))

    def assignment(self, decisions: Decisions) -> Assignment:
        """The binary variables that stand for decisions."""
        yield from self.split.assignment(decisions.boundaries)
        yield from self.order.assignment(decisions.order)
        yield from self.shares.assignment(decisions.micro_batches)

    def hint(self, decisions: Decisions) -> None:
        """Start the engine from these decisions."""
        for variable, value in self.assignment(decisions):
            variable.setInitialValue(value)

    def extract(self, values: Sequence[float]) -> Decisions | None:
        """The decisions in a solution vector, ordered as `model.variables()`; None if it has none.

        Literals are rounded, unless they are fractional, and must be what the decisions make them.
        """
        named = dict(zip((v.name for v in self.model.variables()), values, strict=True))
        rounded = {name: round(value) for name, value in named.items()}
        decisions = Decisions(
            self.order.extract(rounded), self.split.extract(rounded), self.shares.extract(rounded)
        )
        pairs = self.assignment(decisions)
        stands = all(abs(named[variable.name] - value) < FRACTION for variable, value in pairs)
        return decisions if stands else None

    def exclude(self, decisions: Decisions) -> None:
        """(22) Leave out decisions that are judged already."""
        pairs = list(self.assignment(decisions))
        variables, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        signs = [1 if value else -1 for value in values]
        require_at_most(self.model, 22, weighted(signs, variables), sum(values) - 1)


def _fitting_ends(tables: CostTables, held: int, group: int) -> Array:
    """[L] largest end of a run from each layer that fits a group's GPUs; the layer if none does."""
    fits = bytes_needed(tables, held)[:-1] <= tables.capacity_bytes[group]
    after = np.triu(np.ones_like(fits), k=1)
    ends: Array = np.arange(tables.num_layers) + (fits & after).sum(axis=1)
    return ends
