"""Promises of solver.lengths.candidates: plans as strategies, those that may be worth a switch."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from formulations.costs.plan_costs import PlanCosts, plan_costs
from formulations.instance import Instance
from formulations.instance.length_classes import LengthClass
from formulations.lengths.problem import Atom, Replica
from formulations.lengths.row_times import (
    PlanRows,
    atoms_of,
    instance_of_rows,
    lengths_of,
    of_rows,
    plan_rows,
)
from formulations.lengths.strategy_time import NEVER, Numbers, StrategyTimes
from formulations.plan import Configuration
from solver.lengths import candidates as module
from solver.lengths.candidates import CLOSE, _variants, candidates, found_strategies, useful
from solver.simulate import step_time_ns
from solver.study.store import open_study
from tests.command_line import output
from tests.mixed_rows import mixed_strategies, small


@cache
def strategies(name: str) -> tuple[Instance, list[PlanRows]]:
    """An instance and its strategies."""
    if name == "mixed":
        return mixed_strategies()
    instance = small()
    return instance, found_strategies(instance, lambda done, total: None)


def costs_of(instance: Instance, rows: PlanRows, tokens: int) -> PlanCosts:
    """Costs of the strategy's plan with rows of so many tokens, each one sequence."""
    return plan_costs(instance_of_rows(instance, rows.plan, tokens), rows.plan)


def slowest_ns(costs: PlanCosts, replica: int) -> int:
    """Time of a row on the slowest stage of a replica."""
    return int((costs.forward_ns + costs.backward_ns)[:, replica].max())


def row_ns(replica: Replica, tokens: int, sequences: int = 1) -> int:
    """Time of a row of so many sequences, together so many tokens."""
    time = replica.time
    return sequences * time.sequence_ns(tokens // sequences) + time.per_row_ns


def padded(instance: Instance, *tokens: int) -> Instance:
    """Padded rows of three sequences each of so many tokens."""
    classes = tuple(LengthClass(up_to=n, count=3) for n in tokens)
    lengths = lengths_of(instance).model_copy(update={"rows": "padded", "classes": classes})
    return instance.model_copy(update={"lengths": lengths})


@pytest.mark.parametrize("name", ["alike", "mixed"])
def test_rows_are_those_of_the_model(name: str) -> None:
    """Rows of the longest length fit every GPU of a replica; longer ones do not fit some.

    From half of it on they take what the fit says, or less by what it says; eight sequences in a
    row what the model says of a micro-batch of eight, or little more.
    """
    instance, every = strategies(name)
    most = instance.workload.sequence_length
    for rows in every[:: 2 if name == "mixed" else 1]:
        plan = rows.plan.but(config={"micro_batch": 8})
        number = 8 * sum(replica.micro_batches for replica in plan.replicas)
        of_eight = plan_costs(of_rows(instance, rows.strategy.longest // 8, number), plan)
        for r, replica in enumerate(rows.strategy.pipelines):
            for share in (0.61, 1.0):
                tokens = int(replica.longest_row * share)
                costs = costs_of(instance, rows, tokens)
                known, fit = slowest_ns(costs, r), row_ns(replica, tokens)
                assert known <= fit * (1 + 1e-6) <= known * (1 + rows.above + 1e-3)
            assert (costs.memory_bytes <= costs.limit_bytes)[:, r].all()
            if replica.longest_row < most:
                outside = costs_of(instance, rows, min(most, replica.longest_row + 128))
                assert not (outside.memory_bytes <= outside.limit_bytes)[:, r].all()
            known = slowest_ns(of_eight, r)
            fit = row_ns(replica, rows.strategy.longest // 8 * 8, 8)
            assert known <= fit * (1 + 1e-6) <= known * 1.03


@pytest.mark.parametrize("name", ["alike", "mixed"])
def test_padded_rows_take_what_the_model_says(name: str) -> None:
    """Of every class that fits, to the ns, of short rows too, which the host bounds.

    A replica without room for a class takes none, and has the time of the shortest.
    """
    instance, [first, *_] = strategies(name)
    tokens = (100, 500, 2500, 4900, 7300)
    rows = plan_rows(padded(instance, *tokens), first.plan, "padded")
    assert rows.above == 0
    for r, replica in enumerate(rows.strategy.pipelines):
        fitting = [n for n in tokens if n <= replica.longest_row]
        known = {n: slowest_ns(costs_of(instance, rows, n), r) for n in fitting}
        assert {n: row_ns(replica, n) for n in fitting} == known
        assert known[500] < 1.2 * known[100]
    longer = first.strategy.longest + 1
    short = plan_rows(padded(instance, longer), first.plan, "padded").strategy
    assert StrategyTimes(short, [Atom(longer, 1)], "padded").of_set((0,)) is None


def test_a_step_of_one_length_is_the_simulated_one() -> None:
    """With one stage, rows, reduction and optimizer take what a plan's step does.

    With several all rows go at the slowest one's pace, which the filling pipeline does not.
    """
    instance, every = strategies("alike")
    for rows in every:
        number, config = (
            sum(replica.micro_batches for replica in rows.plan.replicas),
            rows.plan.config,
        )
        atom = Atom(rows.strategy.longest, number)
        rows_ns = StrategyTimes(rows.strategy, (atom,), "packed").of_set((0,))
        assert rows_ns is not None
        costs = costs_of(instance, rows, atom.tokens)
        beyond = rows_ns + rows.strategy.anchor_ns - step_time_ns(costs)
        fill_ns = (config.pp - 1) * slowest_ns(costs, 0)
        assert -costs.send_ns.sum() <= beyond <= fill_ns + 1e-6 * rows_ns


def test_bug_a_group_did_not_reduce_its_gradients() -> None:
    """Replicas take time to sum gradients, and the holder of fp32 state to update parameters.

    All degrees that use the four GPUs are there.
    """
    degrees = set()
    for rows in strategies("alike")[1]:
        config = rows.plan.config
        degrees.add((config.dp, config.degrees[0].tp, config.pp))
        assert rows.strategy.anchor_ns > 0
        assert (rows.strategy.visit_ns > 0) is (config.dp > 1)
    assert degrees == {(1, 1, 4), (1, 2, 2), (1, 4, 1), (2, 1, 2), (2, 2, 1), (4, 1, 1)}


def test_what_a_study_holds_is_not_worked_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the fourth layout; it goes on with that one, and all is known the third time."""
    instance, path, begun = small(), tmp_path / "study.db", list[Configuration]()

    def variants(own: Instance, config: Configuration) -> list[PlanRows]:
        begun.append(config)
        if len(begun) == 4:
            raise KeyboardInterrupt
        return _variants(own, config)

    monkeypatch.setattr(module, "_variants", variants)
    with pytest.raises(KeyboardInterrupt), open_study(path, instance) as study:
        candidates(instance, study=study)
    with open_study(path, instance) as study:
        known = candidates(instance, study=study)
        assert len(begun) == len(set(begun)) + 1
        monkeypatch.setattr(module, "plan_switch", None)
        assert candidates(instance, study=study) == known
    assert begun[3] == begun[4]
    assert f"{len(set(begun))} layouts closed, 0 open; " in output("show", "--study", path)


def least(instance: Instance, found: list[PlanRows]) -> Numbers:
    """[i, j] time of the fastest rows for the classes i .. j - 1."""
    atoms = atoms_of(lengths_of(instance))
    strategies = [replace(rows.strategy, visit_ns=0) for rows in found]
    fastest: Numbers = np.minimum.reduce(
        [StrategyTimes(one, atoms, "packed").of_intervals() for one in strategies]
    )
    return fastest


def test_useful_strategies() -> None:
    """On every run of classes the fastest of them is as fast as that of all.

    None is slower everywhere; fewer are left, with names of their own.
    """
    instance, every = mixed_strategies()
    kept = useful(instance, every)
    before, best = least(instance, every), least(instance, kept)
    assert ((best == NEVER) == (before == NEVER)).all()
    assert (best <= before * (1 + 1e-6)).all()
    for one in kept:
        own = least(instance, [one])
        assert ((own < NEVER) & (own <= best * (1 + CLOSE + 0.01))).any()
    assert len({one.strategy.name for one in kept}) == len(kept)
    assert len({id(one.plan) for one in kept}) < len(every)
