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
    [a, b) that the stage holds, begun[k][a] and not begun[k+1][b-1]. With several, for every group
    and way, again >= the sum of its ns over the layers of k, if way[d][r][w].
    What a stage recomputes takes time that never falls when layers are added on either side, see
    `formulations.costs.stage_costs`. So it is at least e exactly if the stage holds one of the
    least runs [a, b) that take e or more: those that take less without their first and without
    their last layer. A stage holds [a, b) iff it starts at a or before, and the next at b or later.
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
from itertools import chain, pairwise, product
from typing import NamedTuple

import numpy as np

from formulations.costs.memory import LayerMemory
from formulations.costs.stage_costs import NEVER, StageCosts
from formulations.costs.tables import Array, CostTables
from formulations.decisions import ALL_FREE, Decisions, Given, PathCut
from formulations.models.layer_to_stage import Split, possible_runs
from formulations.models.microbatches import Shares
from formulations.models.model import (
    Literal,
    Model,
    Pairs,
    Row,
    Term,
    negated,
    total_of,
    weighted,
)
from formulations.models.node_order import order_part
from formulations.plan import Configuration
from formulations.schedules.registry import SCHEDULES, Moments, held


class Run(NamedTuple):
    """A stage with layers [start, end) recomputes for so long at least; None: it has no room."""

    start: int
    end: int
    extra_ns: int | None


def least_runs(extra_ns: Array) -> list[Run]:
    """The rows of one [n, n] matrix of times; NEVER where there is no room."""
    inner = np.zeros_like(extra_ns)
    inner[:-1] = extra_ns[1:]
    inner[:, 1:] = np.maximum(inner[:, 1:], extra_ns[:, :-1])
    rows = np.argwhere(np.triu(extra_ns > np.triu(inner), k=1)).tolist()
    times = [int(extra_ns[start, end]) for start, end in rows]
    pairs = zip(rows, times, strict=True)
    return [Run(a, b, None if time >= NEVER else time) for (a, b), time in pairs]


def _first_moments(
    config: Configuration, device: int, shares: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The least share with which a device comes to each of its fullest moments.

    shares: ascending. With more micro-batches a device comes to all moments that it comes to with
    fewer, or to fuller ones.
    """
    seen = set[tuple[int, ...]]()
    for m in shares:
        for moment in held(config.schedule, config.pp, device, m, *config.chunking):
            if moment not in seen:
                seen.add(moment)
                yield m, moment


class OneConfig:
    """The model of one configuration, see the header; `step_time` is minimised.

    model: where to build it; it minimises nothing if that is one alternative of several. `times`:
    [o][S][R] ns of one micro-batch, with what is recomputed. way[d][r][w], of several chunks per
    device: device d of replica r recomputes all its blocks in way w of the configuration.
    """

    def __init__(self, model: Model, tables: CostTables, given: Given = ALL_FREE) -> None:
        self.model, self.tables = model, tables
        self.order = order_part(model, tables, given)
        self.shares = Shares(model, tables, self.order, given)
        self._costs, limit_ns = StageCosts(tables), given.max_step_time_ns
        if given.boundaries is None:
            fewest = min((choices[0] for choices in self.shares.choices if choices), default=1)
            runs = possible_runs(self._costs, fewest, limit_ns)
        else:
            runs = [np.array([run], dtype=np.int64) for run in pairwise(given.boundaries)]
        self.split = Split(model, tables, runs)
        self.step_time = model.time("step_time")
        self.cuts: set[PathCut] = set()
        self.times = self._passes()
        self.tail = self._tails()
        if limit_ns is not None:
            self.limit_step_time(limit_ns)
        if model.chosen is None:
            model.minimize(self.step_time)

    def _passes(self) -> list[list[list[Term]]]:
        """(1), (2), (25) Times of all kinds of operations."""
        config, alike = self.tables.config, dict[Hashable, list[int]]()
        # Replicas that recompute alike on every stage: of equal groups and transfers, with the
        # same given share; a free share is each one's own.
        for r in range(config.dp):
            choices = tuple(self.shares.choices[r])
            key = self.order.column(r), choices if len(choices) == 1 else r
            alike.setdefault(key, []).append(r)
        self._alike = list(alike.values())
        times = [
            self._stage_times(f"time_{o}", table) for o, table in enumerate(self.tables.passes)
        ]
        if config.vpp > 1:
            self._ways = dict[tuple[int, int], list[Literal]]()
            for d, replicas in product(range(config.pp), self._alike):
                ways = self._new_ways(d, replicas[0])
                self._ways |= {(d, r): ways for r in replicas}
            for d in range(config.pp):
                self._fit_chunks(d)
        for k, backward in enumerate(times[1]):
            for replicas in self._alike:
                again = self._again_of_chunk if config.vpp > 1 else self._again
                again_ns = again(k, replicas[0])
                for r in replicas:
                    backward[r] = total_of(backward[r], again_ns)
        return times

    def _slot(self, stage: int, replica: int) -> int:
        return stage % self.tables.config.pp * self.tables.config.dp + replica

    def _on_owner(self, table: Array, stages: range, replica: int) -> tuple[list[Row], int]:
        """(1) Rows of stages on the owner of their slot, and an upper bound of them."""
        owners = [(literal, j) for j, literal in self.order.types(self._slot(stages[0], replica))]
        costs = self.split.of_layers(stages, {j: table[:, j] for _, j in owners})
        return self.model.choose(costs, owners), costs.upper

    def _stage_times(self, name: str, table: Array) -> list[list[Term]]:
        """(1) [S][R] times of one kind of operation; equal columns share their variables."""
        times = []
        for k in range(self.tables.config.num_stages):
            columns: dict[Hashable, Term] = {}
            for r in range(self.tables.config.dp):
                column = self.order.column(r)
                if column not in columns:
                    rows, upper = self._on_owner(table, range(k, k + 1), r)
                    columns[column] = self.model.maximum(1, rows, upper, f"{name}_{k}_{r}")
            times.append([columns[self.order.column(r)] for r in range(self.tables.config.dp)])
        return times

    def _optimizer(self, device: int) -> Term:
        """(1) Optimizer of a device on the slowest owner of its slots."""
        config = self.tables.config
        table, stages = self.tables.optimizer_ns, config.stages_of(device)
        different: dict[Hashable, tuple[list[Row], int]] = {}
        for r in range(config.dp):
            owners = self.order.types(self._slot(device, r))
            key = owners[0][0] if len(owners) == 1 else -1 - r
            if key not in different:
                different[key] = self._on_owner(table, stages, r)
        rows = [row for owner_rows, _ in different.values() for row in owner_rows]
        upper = max(upper for _, upper in different.values())
        return self.model.maximum(1, rows, upper, f"optimizer_{device}")

    def _again(self, stage: int, replica: int) -> Term:
        """(1), (2) Time of a stage, alone on its device, for what it recomputes."""
        rows, longest = list[Row](), 0
        for j, owner in self.order.types(self._slot(stage, replica)):
            seen: set[Moments] = set()
            # With more micro-batches nothing gets less.
            for m in self.shares.choices[replica]:
                moments = self._costs.moments(stage, m)
                if moments in seen:
                    continue
                seen.add(moments)
                reached = self.shares.at_least(replica, m)
                for start, end, extra_ns in least_runs(self._costs.extra(j, stage, m)):
                    follows = self.split.begun(stage + 1, end - 1)
                    begun = self.split.begun(stage, start)
                    holds = (owner, reached, begun, negated(follows))
                    if extra_ns is None:
                        self.model.some_of(2, (), *holds)
                    else:
                        rows.append((holds, extra_ns))
                        longest = max(longest, extra_ns)
        return self.model.maximum(1, rows, longest, f"again_{stage}_{replica}")

    def _new_ways(self, device: int, replica: int) -> list[Literal]:
        """(25) [W] of which exactly one holds."""
        num_ways = len(self.tables.config.recompute)
        if num_ways == 1:
            return [1]
        ways = [self.model.literal(f"way_{device}_{replica}_{w}") for w in range(num_ways)]
        self.model.exactly_one(25, ways)
        return [*ways]

    def _again_of_chunk(self, stage: int, replica: int) -> Term:
        """(1) Time of a chunk of a replica for what its device recomputes."""
        ways = dict(enumerate(self._ways[stage % self.tables.config.pp, replica]))
        if len(ways) == 1:
            return 0
        owners = [(owner, j) for j, owner in self.order.types(self._slot(stage, replica))]
        times = {(j, w): self.tables.recompute_ns[w][:, j] for _, j in owners for w in ways}
        costs = self.split.of_layers([stage], times)
        return self.model.largest(1, costs, [((), owners)], f"again_{stage}_{replica}", ways)

    def _fit_chunks(self, device: int) -> None:
        """(2) Every slot of a device with several chunks, for every moment and way there may be."""
        config, memory = self.tables.config, self.tables.memory
        workspaces: dict[tuple[int, int], Term] = {}
        needs: dict[tuple[tuple[int, ...], int, int], Term] = {}
        for replicas in self._alike:
            r = replicas[0]
            for m, moment in _first_moments(config, device, self.shares.choices[r]):
                reached = self.shares.at_least(r, m)
                for j, owner in self.order.types(self._slot(device, r)):
                    for way, taken in enumerate(self._ways[device, r]):
                        place, key = (id(memory[j]), way), (moment, id(memory[j]), way)
                        if place not in workspaces:
                            name = f"workspace_{device}_{len(workspaces)}"
                            sizes = memory[j].kept[way].workspace_bytes
                            workspaces[place] = self._largest(name, config.stages_of(device), sizes)
                        if key not in needs:
                            layers = self._chunk_bytes(memory[j], moment, way, device)
                            needs[key] = total_of(memory[j].fixed_bytes, workspaces[place], layers)
                        room = int(self.tables.capacity_bytes[j])
                        self.model.at_most(2, needs[key], room, owner, taken, reached)

    def _chunk_bytes(
        self, memory: LayerMemory, moment: Sequence[int], way: int, device: int
    ) -> Term:
        """Bytes of all layers of a device at a moment, static ones too."""
        waiting = memory.static_bytes + moment[-1] * memory.put_off_bytes
        stages = self.tables.config.stages_of(device)
        pairs, activation = zip(stages, moment[:-1], strict=True), memory.kept[way].activation_bytes
        sums = (self.split.stage_sum(k, waiting + count * activation) for k, count in pairs)
        return total_of(*sums)

    def _largest(self, name: str, stages: Sequence[int], sizes: Array) -> Term:
        """At least the size of every layer: of every run of equal ones that a stage meets."""
        if not sizes.any():
            return 0
        largest = self.model.time(name, int(sizes.max()))
        starts = np.flatnonzero(np.diff(sizes, prepend=-1)).tolist()
        for k, (start, end) in product(stages, pairwise([*starts, len(sizes)])):
            meets = [self.split.begun(k, end - 1), self.split.begun(k + 1, start)]
            size = int(sizes[start])
            self.model.at_most(2, weighted([size, -size], meets), largest)
        return largest

    def _tails(self) -> list[Term]:
        """(3) [p] from the last operation of a device to the end of the step that waits for it."""
        last = self.tables.config.pp - 1
        finish = [
            total_of(self._optimizer(d), self.order.gather(d, self.split)) for d in range(last + 1)
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
            times = [row[r] for row in chain.from_iterable(self.times)]
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
