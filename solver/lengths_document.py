"""The file of a step of mixed lengths: which strategy runs which sequences, in which order.

One JSON object. It holds the problem that was decided: the
length atoms of a step, what every strategy takes for rows, and what switches take; and what that
was made of: the instance, a plan file for every strategy that was not measured, and switch files
for the switches of the step. `verify` derives every figure again but `hetplan_version`,
`runtime_s`, `termination` and `requested_gap`, which describe the run.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from formulations.instance import Instance
from formulations.instance.input_limits import Batch, Count, Index, Line, Name, Seconds
from formulations.instance.record import Record, refusal
from formulations.lengths.problem import (
    Atom,
    Measured,
    Mixed,
    Moves,
    Order,
    PaddedTime,
    Replica,
    Rows,
    RowTime,
    Strategy,
    Switching,
)
from formulations.lengths.shares import micro_batches
from formulations.lengths.tour import Group, Hop, best_single
from formulations.units import seconds
from solver.document import PlanDocument
from solver.files import Envelope
from solver.result import Status, Termination
from solver.switch_document import SwitchDocument

LENGTHS_SCHEMA_VERSION: Final = 3

Nanoseconds = Annotated[int, Field(ge=0, lt=1 << 47)]
PerToken = Annotated[float, Field(ge=0, le=1e15)]
Table = tuple[tuple[Nanoseconds | None, ...], ...]
MOST_ATOMS: Final = 4096
MOST_STRATEGIES: Final = 1024
#: Times of all intervals of atoms by all strategies, which are worked out together.
MOST_TIMES: Final = 1 << 26


class AtomDocument(Record):
    """So many sequences a step of so many tokens at most."""

    tokens: Batch
    count: Batch


class ReplicasDocument(Record):
    """Pipelines that are alike. A row takes a l^2 + b l for each sequence of l tokens, and c.

    rows_ns: in place of that, of a padded row of each atom up to the longest row.
    """

    count: Count
    stages: Count
    longest_row: Batch
    per_square_ns: PerToken
    per_token_ns: PerToken
    per_row_ns: Nanoseconds
    rows_ns: tuple[Nanoseconds, ...] = ()

    @model_serializer(mode="wrap")
    def _without_no_rows(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = fields(self)
        return found if self.rows_ns else {k: v for k, v in found.items() if k != "rows_ns"}


class StrategyDocument(Record):
    """A strategy by its replicas, or by what it takes for each atom; null: not known.

    visit_ns: each time that it has run sequences; anchor_ns: once, if it is the anchor.
    """

    name: Name
    replicas: tuple[ReplicasDocument, ...] = ()
    atoms_ns: tuple[Nanoseconds | None, ...] = ()
    visit_ns: Nanoseconds
    anchor_ns: Nanoseconds

    @model_validator(mode="after")
    def _check_kind(self) -> "StrategyDocument":
        if bool(self.replicas) == bool(self.atoms_ns):
            raise refusal("replicas and atoms_ns", "one of them")
        return self

    @classmethod
    def of(cls, strategy: Strategy | Measured) -> "StrategyDocument":
        """That of a problem."""
        name, once = strategy.name, (strategy.visit_ns, strategy.anchor_ns)
        if isinstance(strategy, Measured):
            return cls(name=name, atoms_ns=strategy.atoms_ns, visit_ns=once[0], anchor_ns=once[1])
        kinds = ((kind, len(list(alike))) for kind, alike in groupby(strategy.replicas))
        replicas = tuple(_replicas_document(kind, count) for kind, count in kinds)
        return cls(name=name, replicas=replicas, visit_ns=once[0], anchor_ns=once[1])


class ProblemDocument(Record):
    """What is decided upon. Switches: [from][to]; null: there is none."""

    rows: Rows
    atoms: tuple[AtomDocument, ...] = Field(min_length=1, max_length=MOST_ATOMS)
    strategies: tuple[StrategyDocument, ...] = Field(min_length=1, max_length=MOST_STRATEGIES)
    parameters_ns: Table
    gradients_ns: Table
    parameters_return: bool

    @model_validator(mode="after")
    def _check_sizes(self) -> "ProblemDocument":
        tokens = [atom.tokens for atom in self.atoms]
        if any(a >= b for a, b in pairwise(tokens)):
            raise refusal("atoms in another order", "by ascending tokens")
        if any(len(one.atoms_ns) not in (0, len(tokens)) for one in self.strategies):
            raise refusal("atoms_ns of another length", f"{len(tokens)}, one for each atom")
        for own in (own for one in self.strategies for own in one.replicas if own.rows_ns):
            known = max(1, bisect_right(tokens, own.longest_row))
            if self.rows != "padded" or len(own.rows_ns) != known:
                allowed = f"{known}, of padded rows of all atoms up to longest_row"
                raise refusal(f"{len(own.rows_ns)} rows_ns, {self.rows}", allowed)
            if own.per_square_ns or own.per_token_ns or own.per_row_ns:
                raise refusal("rows_ns and per_square_ns, per_token_ns, per_row_ns", "one of them")
        count = len(self.strategies)
        if len(tokens) ** 2 * count > MOST_TIMES:
            found = f"{len(tokens):,} atoms and {count:,} strategies"
            raise refusal(found, f"atoms squared times strategies of at most {MOST_TIMES:,}")
        for table in (self.parameters_ns, self.gradients_ns):
            if [len(row) for row in table] != [count] * count:
                raise refusal("a table of switches of another size", f"{count} times {count}")
        return self

    @classmethod
    def of(cls, mixed: Mixed) -> "ProblemDocument":
        """That of a problem."""
        switching = mixed.switching
        return cls(
            rows=mixed.rows,
            atoms=tuple(AtomDocument(tokens=a.tokens, count=a.count) for a in mixed.atoms),
            strategies=tuple(map(StrategyDocument.of, mixed.strategies)),
            parameters_ns=switching.parameters_ns,
            gradients_ns=switching.gradients_ns,
            parameters_return=switching.parameters_return,
        )

    @property
    def mixed(self) -> Mixed:
        """The problem."""
        switching = Switching(self.parameters_ns, self.gradients_ns, self.parameters_return)
        atoms = tuple(Atom(one.tokens, one.count) for one in self.atoms)
        strategies = tuple(_strategy(one, atoms) for one in self.strategies)
        return Mixed(atoms, strategies, switching, self.rows)


def _replicas_document(one: Replica, count: int) -> ReplicasDocument:
    time = one.time
    curve, rows = (RowTime(0, 0, 0), time.rows_ns) if isinstance(time, PaddedTime) else (time, ())
    return ReplicasDocument(
        count=count,
        stages=one.stages,
        longest_row=one.longest_row,
        per_square_ns=curve.per_square_ns,
        per_token_ns=curve.per_token_ns,
        per_row_ns=curve.per_row_ns,
        rows_ns=tuple(ns for _, ns in rows),
    )


def _strategy(document: StrategyDocument, atoms: Sequence[Atom]) -> Strategy | Measured:
    once = document.visit_ns, document.anchor_ns
    if document.atoms_ns:
        return Measured(document.name, document.atoms_ns, *once)
    replicas = [
        replica
        for one in document.replicas
        for replica in [Replica(one.stages, one.longest_row, _time(one, atoms))] * one.count
    ]
    return Strategy(document.name, tuple(replicas), *once)


def _time(document: ReplicasDocument, atoms: Sequence[Atom]) -> RowTime | PaddedTime:
    if document.rows_ns:
        tokens = (atom.tokens for atom in atoms)
        return PaddedTime(tuple(zip(tokens, document.rows_ns, strict=False)))
    return RowTime(document.per_square_ns, document.per_token_ns, document.per_row_ns)


class GroupDocument(Record):
    """What a strategy runs between two switches, and in how long, with the visit.

    buckets: (above, up_to) tokens, ascending. micro_batches: rows on each replica; none where its
    times were measured.
    """

    strategy: Index
    atoms: tuple[Index, ...] = Field(min_length=1)
    buckets: tuple[tuple[Index, Batch], ...]
    sequences: Batch
    tokens: Annotated[int, Field(ge=1)]
    micro_batches: tuple[Batch | Literal[0], ...]
    time_s: Seconds

    @classmethod
    def of(cls, mixed: Mixed, group: Group, time_ns: int) -> "GroupDocument":
        """A group that takes so long."""
        atoms = [mixed.atoms[k] for k in group.atoms]
        return cls(
            strategy=group.strategy,
            atoms=group.atoms,
            buckets=tuple(_buckets(mixed, group)),
            sequences=sum(atom.count for atom in atoms),
            tokens=sum(atom.count * atom.tokens for atom in atoms),
            micro_batches=micro_batches(mixed, group, time_ns),
            time_s=seconds(time_ns),
        )


def _buckets(mixed: Mixed, group: Group) -> Iterator[tuple[int, int]]:
    """Thresholds of runs of neighbouring atoms: above, up to."""
    for _, run in groupby(enumerate(group.atoms), key=lambda pair: pair[1] - pair[0]):
        atoms = [k for _, k in run]
        above = mixed.atoms[atoms[0] - 1].tokens if atoms[0] else 0
        yield above, mixed.atoms[atoms[-1]].tokens


class HopDocument(Record):
    """A switch of the step; strategies."""

    leaves: Index
    enters: Index
    moves: Moves
    time_s: Seconds

    @classmethod
    def of(cls, hop: Hop) -> "HopDocument":
        """A switch that is possible."""
        assert hop.time_ns is not None
        time_s = seconds(hop.time_ns)
        return cls(leaves=hop.leaves, enters=hop.enters, moves=hop.moves, time_s=time_s)


class SingleDocument(Record):
    """The best strategy that runs everything."""

    strategy: Index
    step_time_s: Seconds

    @classmethod
    def of(cls, mixed: Mixed) -> "SingleDocument | None":
        """That of a problem; None where no strategy takes all lengths."""
        single = best_single(mixed)
        return single and cls(strategy=single[0], step_time_s=seconds(single[1]))


class LengthsDocument(Envelope):
    """Everything that `verify` and `show` need; groups and switches in the order of the step.

    above: of every strategy, by which share of a row's time that of `problem` is above it at most.
    instance: None where the problem was not made of one. plans: of every strategy, with rows as
    long as it takes; none where they were measured. switch_plans: of every switch, parameters
    before gradients.
    """

    written_by = "a file of mixed lengths written by lengths --out"
    renewed_by = "run lengths again"

    kind: Literal["lengths"]
    schema_version: Literal[3]
    workload: Line
    order: Order
    status: Status
    termination: Termination
    requested_gap: float = Field(ge=0, lt=1)
    runtime_s: Seconds
    anchor: Index
    step_time_s: Seconds
    lower_bound_s: Seconds
    gap: float
    single: SingleDocument | None
    groups: tuple[GroupDocument, ...] = Field(min_length=1)
    switches: tuple[HopDocument, ...]
    problem: ProblemDocument
    above: tuple[Annotated[float, Field(ge=0, le=1e6)], ...]
    instance: Instance | None
    plans: tuple[PlanDocument, ...]
    switch_plans: tuple[SwitchDocument, ...]
