"""Step time of one shape: the part that all MILP models share.

Sets. Devices d < p; virtual stages k < S, stage k on device k mod p; replicas r < R = dp; slots
s = d R + r; layers l < L; node groups j; operations o: forward, backward, weight gradients where
the schedule splits them off.
Parameters (CostTables, Placer). Operation and optimizer ns [l, j]; static, activation and workspace
bytes [l], and those of activations that wait for weight gradients; capacity bytes [j]; transfers,
sync and gather as the node order makes them.
Parts, each fixed or free. Split: which layers a stage has (layer_to_stage). Order: which group
owns a slot (node_order). Shares: micro-batches of a replica (microbatches).
Variables, continuous, ns. step_time; tail[d], from the last operation of device d to the end of the
step if that waits for it; times[o][k][r], optimizer[d]; tied, the later finish of the tied
devices. No variable but step_time grows with the number of micro-batches: narrow ranges
are what bounds the error of an engine that counts in floats.
Objective. min step_time.
Constraints.
(1) Stage times: for every group j that may own the slot, times[o][k][r] >= the stage's sum of its
    ns on j, less what j may cost more than the owner (`big_m.choice_slack`); the optimizer alike,
    over all chunks and slots of the device.
    With one chunk per device backward passes take again[k][r] longer, for what is recomputed: for
    every group that may own the slot, and every share, again >= the time of every run of layers
    [a, b) that the stage holds (`recompute_rows`), begun[k][a] - begun[k+1][b-1] = 1. With several,
    way[d][r][w], binary, is whether all chunks of device d of replica r are recomputed in way w;
    again >= the sum of its ns over the layers of k, for every group and way, less what these may
    cost more than those that hold (`choices.chosen_pair`).
(2) Memory: for every slot, group j and share, and every run [a, b) that has no room then,
    begun[k][a] - begun[k+1][b-1] <= 1 - owner[s, j] + 1 - reached. Bytes are compared
    while building, as whole numbers; they do not enter the model. With several chunks per device
    (`memory`) their sum does, for every way w unless way[d][r][w] = 0.
(3) Tail: tail[d] >= sync[d] + optimizer[d] + gather[d]; with tied embeddings, devices 0 and p-1
    instead: tied >= optimizer + gather of both, tail[d] >= sync[d] + embedding + tied.
    step_time >= tail[d].
(4) Budget: step_time <= the step time that the limits allow + 1/2; a bound known: >= it - 1/2.
(5) Cuts: step_time >= tail[d] + every known path to the last operation of d, for every replica
    whose share is the path's micro-batches, or more where paths hold for these too
    (`formulations.paths`), else less the longest such path over all splits. Added while solving.
(25) With several chunks per device exactly one way[d][r][w]; replicas that are alike share theirs.
(22) Exclusion: at least one binary variable differs from those of a plan that is judged already.
Assumptions. All replicas share one split. Every term is monotone in every time, so lower bounds
suffice: at a minimum, with all cuts, step_time is the simulated step time. Step times are whole
nanoseconds: the rows (4) leave half of one, so that no plan lies on their edge.
Left out. Paths that nobody has added: without them the optimum is a lower bound.
Size. O(S R J) variables and O(S R J L) rows beside the parts', O(C R) cut rows of O(S) terms.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import pulp

from formulations.costs.tables import CostTables
from formulations.decisions import Decisions
from formulations.milp.big_m import largest_value, longest_path
from formulations.milp.device_ways import DeviceWays
from formulations.milp.memory import add_memory
from formulations.milp.parts import Parts
from formulations.milp.stage_times import StageTimes
from formulations.milp.terms import (
    Linear,
    duration,
    maximum,
    require_at_most,
    total_of,
    weighted,
)
from formulations.path_rows import path_rows
from formulations.paths import PathCut


class Built:
    """A native model with its variables: see the header for the constraints.

    `model` is the native model; `step_time` is its objective, `tail` what follows each device.
    """

    def __init__(
        self,
        model: pulp.LpProblem,
        tables: CostTables,
        parts: Parts,
        max_step_time_ns: int | None = None,
    ) -> None:
        self.model = model
        self.tables = tables
        self.parts = parts
        self.split, self.order = parts.split, parts.order
        self.step_time = duration(model, "step_time")
        model.setObjective(self.step_time)
        self.cuts: set[PathCut] = set()
        ways = DeviceWays(model, tables, parts) if tables.shape.vpp > 1 else None
        self._times = StageTimes(model, tables, parts, ways)
        if ways is not None:
            add_memory(model, tables, parts, ways)
        self.tail = self._tails()
        if max_step_time_ns is not None:
            self.limit_step_time(max_step_time_ns)

    def _tails(self) -> list[Linear]:
        """(3) [p] from the last operation of a device to the end of the step that waits for it."""
        last = self.tables.shape.pp - 1
        tied = (0, last) if self.tables.tied else ()
        finish = [
            total_of(self._times.optimizer(d), self.order.gather(d, self.split))
            for d in range(last + 1)
        ]
        if tied:
            upper = max(largest_value(finish[k]) for k in tied)
            both = maximum(self.model, 3, [finish[0], finish[last]], "tied", upper)
            finish[0] = finish[last] = total_of(self.order.embedding(), both)
        sums = [total_of(self.order.sync(d, self.split), finish[d]) for d in range(last + 1)]
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

    def limit_step_time(self, limit_ns: int) -> None:
        """(4) Allow only plans with this step time or a smaller one."""
        require_at_most(self.model, 4, weighted([2], [self.step_time]), 2 * limit_ns + 1)

    def raise_step_time(self, bound_ns: int) -> None:
        """Tell the engine a proved lower bound; it excludes no plan."""
        require_at_most(self.model, 4, 2 * bound_ns - 1, weighted([2], [self.step_time]))

    def add_cut(self, cut: PathCut) -> bool:
        """(5) Bound the step by a path for every replica it holds for; False if known already."""
        if cut in self.cuts:
            return False
        self.cuts.add(cut)
        for r, reached, more in path_rows(cut, self.tables.shape, self.order, self.parts.shares):
            holds = weighted([1, -1], [reached, more])
            slack = 0 if isinstance(holds, int) else self._longest(cut, r)
            path = weighted([1, slack, -slack], [self._path(cut, r), holds, 1])
            require_at_most(self.model, 5, total_of(path, self.tail[cut.device]), self.step_time)
        return True

    def _sends(self, cut: PathCut, replica: int) -> Linear:
        counts = cut.sends(self.tables.instance.search.blocking_sends)
        return weighted(
            counts, [self.order.send(k, replica, self.split) for k in range(len(counts))]
        )

    def _path(self, cut: PathCut, replica: int) -> Linear:
        counts = [*chain.from_iterable(cut.operations), 1]
        times = [row[replica] for row in chain.from_iterable(self._times.times)]
        return weighted(counts, [*times, self._sends(cut, replica)])

    def _longest(self, cut: PathCut, replica: int) -> int:
        """Longest that the path may be."""
        tables, shape, stages = self.tables, self.tables.shape, []
        for k, counts in enumerate(zip(*cut.operations, strict=True)):
            times = np.sum(
                [n * t for n, t in zip(counts, tables.longest_passes, strict=True)], axis=0
            )
            slot = k % shape.pp * shape.dp + replica
            columns = [times[:, j] for j, _ in self.order.types(slot)]
            stages.append((self.split.intervals(k), columns))
        return longest_path(stages, tables.num_layers) + largest_value(self._sends(cut, replica))

    def hint(self, decisions: Decisions) -> None:
        """Start the engine from these decisions."""
        for variable, value in self.parts.assignment(decisions):
            variable.setInitialValue(value)

    def extract(self, values: Sequence[float]) -> Decisions | None:
        """The decisions in a solution vector, ordered as `model.variables()`; None if it has none.

        See `Parts.extract`.
        """
        names = (variable.name for variable in self.model.variables())
        return self.parts.extract(dict(zip(names, values, strict=True)))

    def exclude(self, decisions: Decisions) -> None:
        """(22) Leave out decisions that are judged already."""
        pairs = list(self.parts.assignment(decisions))
        variables, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        signs = [1 if value else -1 for value in values]
        require_at_most(self.model, 22, weighted(signs, variables), sum(values) - 1)
