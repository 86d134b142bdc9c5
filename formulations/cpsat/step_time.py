"""Step time of one shape: the part that all CP-SAT models share.

Sets. Devices d < p; virtual stages k < S, stage k on device k mod p; replicas r < R = dp; slots
s = d R + r; layers l < L; node groups j; operations o: forward, backward, weight gradients where
the schedule splits them off.
Parameters (CostTables, Placer). Operation and optimizer ns [l, j]; static, activation and workspace
bytes [l], and those of activations that wait for weight gradients; capacity bytes [j]; transfers,
sync and gather as the node order makes them.
Parts, each fixed or free. Split: which layers a stage has (layer_to_stage). Order: which group
owns a slot (node_order). Shares: micro-batches of a replica (microbatches).
Variables. step_time; ready[d], the end of the last operation of device d over all replicas;
times[o][k][r], optimizer[d]; joined, the later sync of the tied devices; way[d][r][w], binary,
    whether all chunks of device d of replica r are recomputed in way w.
Objective. min step_time.
Constraints.
(1) Stage times: times[o][k][r] >= sum of its ns over the layers of k on the group of its slot; the
    optimizer alike, over all chunks and nodes of the device.
    With one chunk per device backward passes take again[k][r] longer, for what is recomputed: for
    every group that may own the slot, and every share, again >= the time of every run of layers
    that the stage holds (`recompute_rows`). With several, for every group and way, again >= the sum
    of its ns over the layers of k, if way[d][r][w].
(2) Memory: with one chunk per device the stage holds no run of layers without room. With several,
    for every slot, group and fullest moment of its device that the share implies
    (`schedules.held`: micro-batches h of every chunk, n that wait), if way[d][r][w], fixed + sum
    over its chunks of static + h * activation[w] + n * waiting, + largest workspace[w] <= capacity.
(3) Tail: step_time >= ready[d] + sync[d] + optimizer[d] + gather[d]; with tied embeddings, devices
    0 and p-1 instead: joined >= ready + sync of both, step_time >= joined + embedding
    + optimizer + gather of both.
(4) Budget: step_time <= the step time that the limits allow.
(5) Cuts: ready[d] >= every known path to the last operation of d, for every replica whose share is
    the path's micro-batches, or more where paths hold for these too (`formulations.paths`). Added
    while solving.
(25) With several chunks per device exactly one way[d][r][w]; replicas that are alike share theirs.
Assumptions. All replicas share one split. Every term is monotone in every time, so lower bounds
suffice: at a minimum, with all cuts, step_time is the simulated step time. No step takes longer
than 2^52 ns (52 days).
Left out. Paths that nobody has added: without them the optimum is a lower bound.
Size. O(S R J) variables and constraints beside the parts', O(C R) cut rows of O(S) terms, or O(S L)
with the split free.
"""

from collections.abc import Sequence

from ortools.sat.python import cp_model

from formulations.costs.tables import CostTables
from formulations.cpsat.device_ways import DeviceWays
from formulations.cpsat.memory import add_memory
from formulations.cpsat.parts import Parts
from formulations.cpsat.stage_times import StageTimes
from formulations.cpsat.terms import (
    Linear,
    negated,
    require_at_most,
    total_of,
)
from formulations.decisions import Decisions
from formulations.path_rows import path_rows
from formulations.paths import PathCut

HORIZON_NS = 1 << 52


class Built:
    """A native model with its variables: see the header for the constraints.

    `model` is the native model; `step_time` and `ready` are its objective and device ends.
    """

    def __init__(
        self,
        model: cp_model.CpModel,
        tables: CostTables,
        parts: Parts,
        max_step_time_ns: int | None = None,
    ) -> None:
        self.model = model
        self.tables = tables
        self.parts = parts
        self.split, self.order = parts.split, parts.order
        self.horizon_ns = HORIZON_NS if max_step_time_ns is None else max(0, max_step_time_ns)
        self.step_time = model.new_int_var(0, self.horizon_ns, "step_time")
        self.ready = [model.new_int_var(0, self.horizon_ns, f"ready[{d}]") for d in self._devices]
        self.cuts: set[PathCut] = set()
        ways = DeviceWays(model, tables, parts) if tables.shape.vpp > 1 else None
        self._times = StageTimes(model, tables, parts, ways)
        if ways is not None:
            add_memory(model, tables, parts, ways)
        self._add_tail()
        if max_step_time_ns is not None:
            self.limit_step_time(max_step_time_ns)
        model.minimize(self.step_time)

    @property
    def _devices(self) -> range:
        return range(self.tables.shape.pp)

    def _add_tail(self) -> None:
        """(3) From the last operation of every device to the end of the step."""
        tables, last = self.tables, self.tables.shape.pp - 1
        tied = (0, last) if tables.tied else ()
        joined = self.model.new_int_var(0, self.horizon_ns, "joined") if tied else 0
        for d in self._devices:
            stages, nodes = tables.shape.stages_of(d), self.order.nodes(d)
            optimizer = self._times.slowest("optimizer", tables.optimizer_ns, stages, nodes)
            finish = optimizer + self.order.gather(d, self.split)
            synced = self.ready[d] + self.order.sync(d, self.split)
            if d in tied:
                self.model.add(joined >= synced)
                self.model.add(self.step_time >= joined + self.order.embedding() + finish)
            else:
                self.model.add(self.step_time >= synced + finish)

    def limit_step_time(self, limit_ns: int) -> None:
        """(4) Allow only plans with this step time or a smaller one."""
        self.model.add(self.step_time <= limit_ns)

    def raise_step_time(self, bound_ns: int) -> None:
        """Tell the engine a proved lower bound; it excludes no plan."""
        self.model.add(self.step_time >= bound_ns)

    def add_cut(self, cut: PathCut) -> bool:
        """(5) Bound `ready` by a path for every replica it holds for; False if known already."""
        if cut in self.cuts:
            return False
        self.cuts.add(cut)
        for r, reached, more in path_rows(cut, self.tables.shape, self.order, self.parts.shares):
            holds = reached, negated(more)
            require_at_most(self.model, self._path(cut, r), self.ready[cut.device], *holds)
        return True

    def _path(self, cut: PathCut, replica: int) -> Linear:
        parts: list[tuple[int, Linear]] = [
            (n, row[replica])
            for counts, rows in zip(cut.operations, self._times.times, strict=True)
            for n, row in zip(counts, rows, strict=True)
        ]
        sends = cut.sends(self.tables.instance.search.blocking_sends)
        parts.extend(
            (count, self.order.send(k, replica, self.split)) for k, count in enumerate(sends)
        )
        return total_of(*(n * part for n, part in parts if n))

    def hint(self, decisions: Decisions) -> None:
        """Start the engine from these decisions."""
        self.parts.hint(decisions)

    def extract(self, values: Sequence[float]) -> Decisions:
        """The decisions in a solution vector, which is indexed by variable."""
        return self.parts.extract(values)
