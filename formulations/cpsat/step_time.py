"""Step time of one shape: the part that all CP-SAT models share.

Sets. Stages k < p; replicas r < R = dp; slots s = k R + r; layers l < L; node groups j.
Parameters (CostTables, Placer). Forward, backward and optimizer ns [l, j]; static, activation and
workspace bytes [l]; capacity bytes [j]; transfers, sync and gather as the node order makes them.
Parts, each fixed or free. Split: which layers a stage has (layer_to_stage). Order: which group
owns a slot (node_order). Shares: micro-batches of a replica (microbatches).
Variables. step_time; ready[k], the end of the last backward of stage k over all replicas;
forward[k][r], backward[k][r], optimizer[k]; joined, the later sync of the tied stages.
Objective. min step_time.
Constraints.
(1) Stage times: forward[k][r] >= sum of forward ns over the layers of k on the group of its slot;
    backward, optimizer alike (the optimizer over all nodes of the stage).
(2) Memory: for every slot, group and number h of micro-batches in flight that the share implies,
    fixed + static + h * activation + largest workspace <= capacity of the group.
(3) Tail: step_time >= ready[k] + sync[k] + optimizer[k] + gather[k]; with tied embeddings, stages
    0 and p-1 instead: joined >= ready + sync of both, step_time >= joined + embedding
    + optimizer + gather of both.
(4) Budget: step_time <= the step time that the limits allow.
(5) Cuts: ready[k] >= every known path to the last backward of k, for every replica whose share
    reaches the path's micro-batches (`formulations.paths`). Added while solving.
Assumptions. All replicas share one split. Every term is monotone in every time, so lower bounds
suffice: at a minimum, with all cuts, step_time is the simulated step time. No step takes longer
than 2^52 ns (52 days).
Left out. Paths that nobody has added: without them the optimum is a lower bound.
Size. O(p R J) variables and constraints beside the parts', O(C R) cut rows of O(p) terms, or O(p L)
with the split free.
"""

from collections.abc import Hashable, Iterable, Sequence

from ortools.sat.python import cp_model

from formulations.costs.tables import Array, CostTables
from formulations.cpsat.parts import Order, Shares, Split
from formulations.cpsat.terms import Linear, Literal, enforced_maximum, require_at_most
from formulations.decisions import Decisions
from formulations.paths import PathCut
from formulations.schedules import in_flight

HORIZON_NS = 1 << 52


class Built:
    """A native model with its variables: see the header for the constraints.

    `model` is the native model; `step_time` and `ready` are its objective and stage ends.
    """

    def __init__(
        self,
        model: cp_model.CpModel,
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
        self.step_time = model.new_int_var(0, HORIZON_NS, "step_time")
        self.ready = [model.new_int_var(0, HORIZON_NS, f"ready[{k}]") for k in self._stages]
        self.cuts: set[PathCut] = set()
        self._sums: dict[tuple[str, int, int], Linear] = {}
        self.forward = self._stage_times("forward", tables.forward_ns)
        self.backward = self._stage_times("backward", tables.backward_ns)
        self._add_memory()
        self._add_tail()
        if max_step_time_ns is not None:
            self.limit_step_time(max_step_time_ns)
        model.minimize(self.step_time)

    @property
    def _stages(self) -> range:
        return range(self.tables.shape.pp)

    @property
    def _replicas(self) -> range:
        return range(self.tables.shape.dp)

    def _sum(self, name: str, table: Array, stage: int, group: int) -> Linear:
        """Stage sum of one column of a table, built once."""
        key = (name, stage, group)
        if key not in self._sums:
            self._sums[key] = self.split.stage_sum(stage, table[:, group])
        return self._sums[key]

    def _slowest(
        self, name: str, table: Array, stage: int, groups: Iterable[tuple[int, Literal]]
    ) -> Linear:
        """(1) Time of a stage on whichever of the groups hold it."""
        options = list(groups)
        terms: list[tuple[tuple[Literal, ...], Linear]] = [
            ((literal,), self._sum(name, table, stage, j)) for j, literal in options
        ]
        if len(options) > 1:
            used = sorted({j for j, _ in options})
            least = self.split.stage_sum(stage, table[:, used].min(axis=1))
            terms.append(((1,), least))
        upper = int(table.max(axis=1).sum())
        return enforced_maximum(self.model, terms, upper, f"{name}[{stage}]")

    def _stage_times(self, name: str, table: Array) -> list[list[Linear]]:
        """(1) [p][R] forward or backward times; equal columns share their expressions."""
        dp = self.tables.shape.dp
        rows = []
        for k in self._stages:
            kept: dict[Hashable, Linear] = {}
            for r in self._replicas:
                column = self.order.column(r)
                if column not in kept:
                    kept[column] = self._slowest(name, table, k, self.order.types(k * dp + r))
            rows.append([kept[self.order.column(r)] for r in self._replicas])
        return rows

    def _add_memory(self) -> None:
        """(2) Every slot, for every group and number in flight that may occur."""
        tables, shape = self.tables, self.tables.shape
        for k in self._stages:
            workspace = self.split.largest(k, tables.memory.workspace_bytes)
            needs: dict[int, Linear] = {}
            for r in self._replicas:
                held_before = 0
                for m in self.shares.choices(r):
                    held = in_flight(shape.schedule, shape.pp, k, m)
                    if held == held_before:
                        continue
                    held_before = held
                    if held not in needs:
                        sizes = tables.memory.static_bytes + held * tables.memory.activation_bytes
                        needs[held] = tables.memory.fixed_bytes + self.split.stage_sum(k, sizes)
                    for j, literal in self.order.types(k * shape.dp + r):
                        require_at_most(
                            self.model,
                            needs[held] + workspace,
                            int(tables.capacity_bytes[j]),
                            literal,
                            self.shares.at_least(r, m),
                        )

    def _add_tail(self) -> None:
        """(3) From the last backward of every stage to the end of the step."""
        tables, last = self.tables, self.tables.shape.pp - 1
        tied = (0, last) if tables.embedding_bytes else ()
        joined = self.model.new_int_var(0, HORIZON_NS, "joined") if tied else 0
        for k in self._stages:
            optimizer = self._slowest("optimizer", tables.optimizer_ns, k, self.order.nodes(k))
            finish = optimizer + self.order.gather(k, self.split)
            synced = self.ready[k] + self.order.sync(k, self.split)
            if k in tied:
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
        """(5) Bound `ready` by a path for every replica that reaches it; False if known already.

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
            require_at_most(self.model, self._path(cut, r), self.ready[cut.stage], reached)
        return True

    def _path(self, cut: PathCut, replica: int) -> Linear:
        parts: list[tuple[int, Linear]] = []
        for k in self._stages:
            parts.append((cut.forward[k], self.forward[k][replica]))
            parts.append((cut.backward[k], self.backward[k][replica]))
        sends = cut.sends(self.tables.instance.search.blocking_sends)
        parts.extend(
            (count, self.order.send(k, replica, self.split)) for k, count in enumerate(sends)
        )
        constant = sum(n * part for n, part in parts if isinstance(part, int))
        rest = [n * part for n, part in parts if n and not isinstance(part, int)]
        return constant + cp_model.LinearExpr.sum(rest) if rest else constant

    def hint(self, decisions: Decisions) -> None:
        """Start the engine from these decisions."""
        self.model.clear_hints()  # type: ignore[no-untyped-call]
        self.split.hint(decisions.boundaries)
        self.order.hint(decisions.order)
        self.shares.hint(decisions.micro_batches)

    def extract(self, values: Sequence[float]) -> Decisions:
        """The decisions in a solution vector, which is indexed by variable."""
        return Decisions(
            self.order.extract(values), self.split.extract(values), self.shares.extract(values)
        )
