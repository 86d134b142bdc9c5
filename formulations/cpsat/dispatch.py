"""Dispatch of the sequences of one step: sequences to rows, rows to replicas (PROBLEM section 8).

Sets. Replicas r; rows j < J of each; sequences i.
Parameters. Lengths l_i in tokens; times t_ri in ns; longest row L_r, its fixed time
c_r, stages p_r.
Variables. lies[r][j][i]: i is in row j of r, where it fits; used[r][j]; time[r][j]; longest[r].
Objective. The least T >= 0, no less than `above`, with (4).
Constraints.
(1) Every sequence lies in one row.
(2) sum over i of l_i lies[r][j][i] <= L_r used[r][j]; padded rows hold one sequence at most.
(3) time[r][j] = sum over i of t_ri lies[r][j][i] + c_r used[r][j] <= longest[r].
(4) sum over j of time[r][j] + (p_r - 1) longest[r] <= T.
(5) Symmetry: times of a replica's rows descend; so do numbers of rows of neighbours that are equal.
Assumptions. J may be small: of two rows that fit into one no longer than the replica's longest, the
one saves a row's fixed time (`most_rows`).
Size. O(replicas J n) binary variables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ortools.sat.python import cp_model

from formulations.lengths.dispatch import Dispatch
from formulations.lengths.problem import Replica, Rows, Strategy


@dataclass(frozen=True)
class Built:
    """The model and its variables; `lies`: [replica][row] to sequence."""

    model: cp_model.CpModel
    lies: tuple[tuple[dict[int, cp_model.IntVar], ...], ...]

    def hint(self, dispatch: Dispatch) -> None:
        """Suggest a dispatch; (5) may turn it around."""
        for rows, own in zip(self.lies, dispatch.rows, strict=True):
            for j, row in enumerate(rows):
                held = own[j] if j < len(own) else ()
                for i, literal in row.items():
                    self.model.add_hint(literal, int(i in held))

    def extract(self, values: Sequence[float]) -> Dispatch:
        """The dispatch of a solution."""
        rows = (
            tuple(tuple(i for i, literal in row.items() if values[literal.index]) for row in own)
            for own in self.lies
        )
        return Dispatch(tuple(tuple(row for row in own if row) for own in rows))


def most_rows(replica: Replica, lengths: Sequence[int], rows: Rows, within: int) -> int:
    """Rows that suffice for a replica in some best dispatch that takes no longer than `within` ns.

    Any two rows of times t and u, the longest row at least M, exceed it together, t + u - c > M, or
    the tokens L of a row. Summed around a circle of n rows: 2 W / M + n c / M + 2 tokens / L > n.
    """
    fitting = sorted(length for length in lengths if length <= replica.longest_row)
    if rows == "padded":
        return len(fitting)
    most, work, tokens, fixed = 0, 0, 0, replica.time.per_row_ns
    for count, length in enumerate(fitting, 1):  # of the replica's longest sequence
        time = replica.time.sequence_ns(length)
        work, tokens, longest = work + time, tokens + length, max(1, time + fixed)
        done = min(work, within - (replica.stages - 1) * longest)
        if done >= time:
            rest = max(longest - fixed, 1) * replica.longest_row
            bound = 2 * (done * replica.longest_row + tokens * longest) // rest
            if replica.stages == 1:  # nothing but tokens keeps rows apart
                bound = 2 * tokens // replica.longest_row
            most = max(most, min(count, max(1, bound)))
    return most


def build(strategy: Strategy, lengths: Sequence[int], rows: Rows, within: range) -> Built:
    """The model of all dispatches that may be least; `within`: their times in ns."""
    model = cp_model.CpModel()
    lies = tuple(
        tuple(
            _row(model, f"{r},{j}", replica, lengths, rows)
            for j in range(most_rows(replica, lengths, rows, within[-1]))
        )
        for r, replica in enumerate(strategy.replicas)
    )
    for i in range(len(lengths)):
        model.add_exactly_one(row[i] for own in lies for row in own if i in row)  # (1)
    makespan = model.new_int_var(within[0], within[-1], "makespan")
    counts = [
        _pipeline(model, replica, lengths, own, makespan, within[-1])
        for replica, own in zip(strategy.replicas, lies, strict=True)
    ]
    for (one, more), (other, fewer) in pairwise(zip(strategy.replicas, counts, strict=True)):
        if one == other:
            model.add(more >= fewer)  # (5)
    model.minimize(makespan)
    return Built(model, lies)


def _row(
    model: cp_model.CpModel, name: str, replica: Replica, lengths: Sequence[int], rows: Rows
) -> dict[int, cp_model.IntVar]:
    """(2) Which sequences a row holds, of those that fit."""
    row = {
        i: model.new_bool_var(f"lies[{name},{i}]")
        for i, length in enumerate(lengths)
        if length <= replica.longest_row
    }
    if rows == "padded":
        model.add_at_most_one(row.values())
    model.add(sum(lengths[i] * literal for i, literal in row.items()) <= replica.longest_row)
    return row


def _pipeline(
    model: cp_model.CpModel,
    replica: Replica,
    lengths: Sequence[int],
    rows: Sequence[dict[int, cp_model.IntVar]],
    makespan: cp_model.IntVar,
    horizon: int,
) -> cp_model.LinearExpr:
    """(3) to (5) of one replica; returns how many rows it runs."""
    longest = model.new_int_var(0, horizon, "longest")
    times, counts = [], []
    for row in rows:
        used = model.new_bool_var("used")
        for literal in row.values():
            model.add_implication(literal, used)
        time = model.new_int_var(0, horizon, "time")
        works = [replica.time.sequence_ns(lengths[i]) * literal for i, literal in row.items()]
        model.add(time == sum(works) + replica.time.per_row_ns * used)
        model.add(time <= longest)
        times.append(time)
        counts.append(used)
    for more, less in pairwise(times):
        model.add(more >= less)
    model.add(sum(times) + (replica.stages - 1) * longest <= makespan)
    return cp_model.LinearExpr.sum(counts)
