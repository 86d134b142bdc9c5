"""Promises of solver.lengths.candidates: plans as strategies, those that may be worth a switch."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from formulations.costs.plan_costs import PlanCosts, plan_costs
from formulations.instance import Instance
from formulations.instance.lengths import LengthClass
from formulations.lengths.problem import Atom, RowTime
from formulations.lengths.row_times import PlanRows, lengths_of, of_rows, plan_rows
from formulations.lengths.strategy_time import NEVER, Numbers, StrategyTimes
from formulations.plan import Configuration
from solver.lengths import candidates as module
from solver.lengths.candidates import CLOSE, _variants, candidates, found_strategies, useful
from solver.simulate import step_time_ns
from solver.study.store import open_study
from tests.command_line import run
from tests.mixed_rows import mixed_strategies, small


@cache
def strategies(name: str) -> tuple[Instance, list[PlanRows]]:
    """An instance and its strategies."""
    if name == "mixed":
        return mixed_strategies()
    instance = small()
    return instance, found_strategies(instance, lambda done, total: None)


def costs_of(instance: Instance, found: PlanRows, tokens: int) -> PlanCosts:
    """Costs of the strategy's plan with rows of so many tokens, each one sequence."""
    rows = sum(replica.micro_batches for replica in found.plan.replicas)
    return plan_costs(of_rows(instance, tokens, rows), found.plan)


def slowest_ns(costs: PlanCosts, replica: int) -> int:
    """Time of a row on the slowest stage of a replica."""
    return int((costs.forward_ns + costs.backward_ns)[:, replica].max())


def row_ns(time: RowTime, tokens: int, sequences: int = 1) -> int:
    """Time of a row of so many sequences, together so many tokens."""
    return sequences * time.sequence_ns(tokens // sequences) + time.per_row_ns


@pytest.mark.parametrize("name", ["alike", "mixed"])
def test_rows_are_those_of_the_model(name: str) -> None:
    """Rows of the longest length fit every GPU of a replica; longer ones do not fit some.

    From half of it on they take what the fit says, or less by what it says; eight sequences in a
    row what the model says of a micro-batch of eight, or little more.
    """
    instance, found = strategies(name)
    most = instance.workload.sequence_length
    for rows in found[:: 2 if name == "mixed" else 1]:
        config = rows.plan.config.model_copy(update={"micro_batch": 8})
        plan = rows.plan.model_copy(update={"config": config})
        number = 8 * sum(replica.micro_batches for replica in plan.replicas)
        of_eight = plan_costs(of_rows(instance, rows.strategy.longest // 8, number), plan)
        for r, replica in enumerate(rows.strategy.pipelines):
            for share in (0.61, 1.0):
                tokens = int(replica.longest_row * share)
                costs = costs_of(instance, rows, tokens)
                known, fit = slowest_ns(costs, r), row_ns(replica.time, tokens)
                assert known <= fit * (1 + 1e-6) <= known * (1 + rows.above + 1e-3)
            assert (costs.memory_bytes <= costs.limit_bytes)[:, r].all()
            if replica.longest_row < most:
                outside = costs_of(instance, rows, min(most, replica.longest_row + 128))
                assert not (outside.memory_bytes <= outside.limit_bytes)[:, r].all()
            known = slowest_ns(of_eight, r)
            fit = row_ns(replica.time, rows.strategy.longest // 8 * 8, 8)
            assert known <= fit * (1 + 1e-6) <= known * 1.03


@pytest.mark.parametrize("name", ["alike", "mixed"])
def test_padded_rows_take_what_the_model_says(name: str) -> None:
    """Of every class that fits, to the ns, of short rows too, which the host bounds."""
    instance, found = strategies(name)
    assert instance.lengths is not None
    tokens = (100, 500, 2500, 4900, 7300)
    classes = tuple(LengthClass(up_to=n, count=3) for n in tokens)
    lengths = instance.lengths.model_copy(update={"rows": "padded", "classes": classes})
    padded = instance.model_copy(update={"lengths": lengths})
    rows = plan_rows(padded, found[0].plan, "padded")
    assert rows.above == 0
    for r, replica in enumerate(rows.strategy.pipelines):
        fitting = [n for n in tokens if n <= replica.longest_row]
        known = {n: slowest_ns(costs_of(padded, rows, n), r) for n in fitting}
        assert {n: row_ns(replica.time, n) for n in fitting} == known
        assert known[500] < 1.2 * known[100]


def test_rows_shorter_than_any_class() -> None:
    """A replica without room for a class takes none, and has the time of the shortest."""
    instance, found = strategies("alike")
    assert instance.lengths is not None
    classes = (LengthClass(up_to=found[0].strategy.longest + 1, count=1),)
    lengths = instance.lengths.model_copy(update={"rows": "padded", "classes": classes})
    one = plan_rows(instance.model_copy(update={"lengths": lengths}), found[0].plan, "padded")
    atoms = [Atom(classes[0].up_to, 1)]
    assert StrategyTimes(one.strategy, atoms, "padded").of_set((0,)) is None


def test_a_step_of_one_length_is_the_simulated_one() -> None:
    """With one stage, rows, reduction and optimizer take what a plan's step does.

    With several all rows go at the slowest one's pace, which the filling pipeline does not.
    """
    instance, found = strategies("alike")
    for one in found:
        number = sum(replica.micro_batches for replica in one.plan.replicas)
        atom = Atom(one.strategy.longest, number)
        rows_ns = StrategyTimes(one.strategy, (atom,), "packed").of_set((0,))
        assert rows_ns is not None
        costs = plan_costs(of_rows(instance, atom.tokens, number), one.plan)
        beyond = rows_ns + one.strategy.anchor_ns - step_time_ns(costs)
        fill_ns = (one.plan.config.pp - 1) * slowest_ns(costs, 0)
        assert -costs.send_ns.sum() <= beyond <= fill_ns + 1e-6 * rows_ns


def test_bug_a_group_did_not_reduce_its_gradients() -> None:
    """Replicas take time to sum gradients, and the holder of fp32 state to update parameters."""
    for one in strategies("alike")[1]:
        assert one.strategy.anchor_ns > 0
        assert (one.strategy.visit_ns > 0) is (one.plan.config.dp > 1)


def test_unlike_replicas() -> None:
    """On two types of GPUs the replica on the slower one is slower, and holds shorter rows."""
    _, found = strategies("mixed")
    apart = next(one for one in found if (one.plan.config.dp, one.plan.config.pp) == (2, 1))
    fast, slow = sorted(row_ns(one.time, 4096) for one in apart.strategy.pipelines)
    assert slow > 1.5 * fast
    longest = [one.longest_row for one in apart.strategy.pipelines]
    assert longest[0] != longest[1] or min(longest) == 8064


def test_every_layout() -> None:
    """All degrees that use the four GPUs are there."""
    _, found = strategies("alike")
    degrees = {(s.dp, s.degrees[0].tp, s.pp) for s in (one.plan.config for one in found)}
    assert degrees == {(1, 1, 4), (1, 2, 2), (1, 4, 1), (2, 1, 2), (2, 2, 1), (4, 1, 1)}


class KilledError(Exception):
    """In place of a signal."""


def test_killed_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts and switches of a study are not worked out again; strategies and times are equal."""
    instance, path, begun = small(), tmp_path / "study.db", list[Configuration]()
    known = candidates(instance)

    def variants(own: Instance, config: Configuration) -> list[PlanRows]:
        begun.append(config)
        if len(begun) == 4:
            raise KilledError
        return _variants(own, config)

    monkeypatch.setattr(module, "_variants", variants)
    with pytest.raises(KilledError), open_study(path, instance) as study:
        candidates(instance, study=study)
    for _ in range(2):
        with open_study(path, instance) as study:
            found = candidates(instance, study=study)
        assert found == known
        monkeypatch.setattr(module, "plan_switch", None)  # all are known the second time
    assert begun.count(begun[3]) == 2
    assert len(begun) == len(set(begun)) + 1
    code, out, _ = run("show", "--study", path)
    assert (code, f"{len(set(begun))} layouts closed, 0 open; " in out) == (0, True)


@cache
def useful_ones() -> tuple[Instance, list[PlanRows], list[PlanRows]]:
    """An instance, its strategies, and the useful ones."""
    instance, found = mixed_strategies()
    return instance, found, useful(instance, found)


def least(instance: Instance, found: list[PlanRows]) -> Numbers:
    """[i, j] time of the fastest rows for the classes i .. j - 1."""
    atoms = [Atom(one.up_to, one.count) for one in lengths_of(instance).classes]
    rows = [replace(one.strategy, visit_ns=0) for one in found]
    times = [StrategyTimes(one, atoms, "packed").of_intervals() for one in rows]
    fastest: Numbers = np.minimum.reduce(times)
    return fastest


def test_no_run_of_classes_gets_slower() -> None:
    """On every run of classes the fastest of the useful ones is as fast as that of all."""
    instance, found, kept = useful_ones()
    before, after = least(instance, found), least(instance, kept)
    assert ((after == NEVER) == (before == NEVER)).all()
    assert (after <= before * (1 + 1e-6)).all()


def test_each_is_close_somewhere() -> None:
    """None is slower everywhere; fewer are left, with names of their own."""
    instance, found, kept = useful_ones()
    best = least(instance, kept)
    for one in kept:
        own = least(instance, [one])
        assert ((own < NEVER) & (own <= best * (1 + CLOSE + 0.01))).any()
    assert len({one.strategy.name for one in kept}) == len(kept)
    assert len({id(one.plan) for one in kept}) < len(found)
