"""Promises of solver.lengths.candidates: plans as strategies, those that may be worth a switch."""

from functools import cache
from pathlib import Path

import pytest

from formulations.costs.plan_costs import PlanCosts, plan_costs
from formulations.errors import NoPlanError, PlannerError
from formulations.instance import Instance
from formulations.lengths import row_times
from formulations.lengths.problem import Replica
from formulations.lengths.tour import best_single
from formulations.plan import Configuration
from solver.lengths import candidates as module
from solver.lengths.candidates import (
    _variants,
    candidates,
    found_strategies,
    static_step,
    switch_times,
    useful,
)
from solver.study.store import open_study
from tests.command_line import output, run
from tests.conftest import present, text_of
from tests.mixed_lengths import MIXED, replaced, small
from tests.recorded import Cases, digest, recorded
from tests.refusals import refusals

#: Sequences for which memory is too small where a GPU holds much.
LONG = {"8000, count: 2": "200000, count: 1", "search: {": "search: {tensor_parallel: 2, "}


@cache
def strategies(name: str) -> tuple[Instance, list[row_times.PlanRows]]:
    instance = small(**{"long": LONG, "mixed": MIXED}.get(name, {}))
    return instance, found_strategies(instance, lambda done, total: None)


def costs_of(instance: Instance, rows: row_times.PlanRows, tokens: int) -> PlanCosts:
    return plan_costs(row_times.instance_of_rows(instance, rows.plan, tokens), rows.plan)


def slowest_ns(costs: PlanCosts, replica: int) -> int:
    return int((costs.forward_ns + costs.backward_ns)[:, replica].max())


def row_ns(replica: Replica, tokens: int, sequences: int = 1) -> int:
    """Time of a row of so many sequences, together so many tokens."""
    time = replica.time
    return sequences * time.sequence_ns(tokens // sequences) + time.per_row_ns


@pytest.mark.parametrize("name", ["alike", "mixed"])
def test_rows_are_those_of_the_model(name: str) -> None:
    """Rows of the longest length fit every GPU of a replica; longer ones do not fit some.

    From half of it on they take what the fit says, or less by what it says; eight sequences in a
    row what the model says of a micro-batch of eight, or little more.
    """
    instance, every = strategies(name)
    most = instance.workload.sequence_length
    for rows in every[:: 32 if name == "mixed" else 4]:
        plan = rows.plan.but(config={"micro_batch": 8})
        number = 8 * sum(replica.micro_batches for replica in plan.replicas)
        of_eight = plan_costs(row_times.of_rows(instance, rows.strategy.longest // 8, number), plan)
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


def test_what_a_study_holds_is_not_worked_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the fourth layout; it goes on with that one, and all is known the third time."""
    instance, path, begun = small(), tmp_path / "study.db", list[Configuration]()

    def variants(own: Instance, config: Configuration) -> list[row_times.PlanRows]:
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
        assert candidates(instance, study=study) == known
    assert begun[3] == begun[4]
    assert len(begun) == len(set(begun)) + 1
    assert f"{len(set(begun))} layouts closed, 0 open" in output("show", "--study", path)


@pytest.mark.parametrize("name", ["alike", "mixed", "long"])
@recorded("candidates")
def test_strategies_are_the_recorded_ones(name: str) -> Cases:
    instance, every = strategies(name)
    kept = useful(instance, every)
    for title, found in (("found", every), ("kept", kept)):
        for n, rows in enumerate(found):
            replicas = [[r.stages, r.longest_row, r.count] for r in rows.strategy.replicas]
            longest_ns = [row_ns(r, r.longest_row) // 1000 for r in rows.strategy.replicas]
            once = [rows.strategy.visit_ns, rows.strategy.anchor_ns, round(rows.above, 6)]
            told = [rows.strategy.name, digest(rows.plan), *once, replicas, longest_ns]
            yield f"{name} {title} {n}", told
    plans = [rows.plan for rows in kept]
    yield f"{name} switches", digest(switch_times(instance.cluster, instance.workload, plans))
    assert len({rows.strategy.name for rows in kept}) == len(kept)


def test_degrees_that_leave_gpus_over_are_no_layout() -> None:
    """tests/data/consoles/lengths.md shows this line, and those of lengths that do not fit."""
    with pytest.raises(NoPlanError, match=r"no layout over all 4 GPUs, which every strategy"):
        candidates(small(**{"search: {": "search: {data_parallel: 3, "}))


# A strategy that the user names

INSTANCE = text_of("spaces/two_nodes.yaml")


def two_nodes(**changes: str) -> Instance:
    return replaced(INSTANCE, changes)


@cache
def best_ns(**changes: str) -> int:
    """Of all strategies that the search finds."""
    return present(best_single(candidates(two_nodes(**changes)).mixed)).step_ns


def test_a_named_strategy_takes_what_its_search_alone_gives() -> None:
    """Inside nodes that of an instance whose lists have nothing else; never below the best."""
    for tp, dp, pp in ((4, 2, 1), (2, 2, 2)):
        alone = f"pipeline_parallel: [{pp}], data_parallel: [{dp}], tensor_parallel: [{tp}]"
        name, step_ns = static_step(two_nodes(), f"tp={tp}, dp={dp},pp={pp}")
        assert step_ns == best_ns(**{"pipeline_parallel: [1, 2]": alone}) >= best_ns()
        assert name.startswith(f"dp {dp}, tp {tp}, pp {pp}")


def test_tensor_groups_of_two_nodes_are_slower_than_those_of_one() -> None:
    """Their traffic crosses the network: slower than the best, faster on a faster network."""
    _, wide_ns = static_step(two_nodes(), "dp=1,tp=8,pp=1")
    assert wide_ns > best_ns()
    faster = two_nodes(**{"100 Gbit/s": "400 Gbit/s"})
    assert static_step(faster, "dp=1,tp=8,pp=1")[1] < wide_ns


@refusals("static")
def test_no_strategies_are_refused(text: str, message: str, tmp_path: Path) -> None:
    """In one line, by the command, before anything is written."""
    path, out = tmp_path / "x.yaml", tmp_path / "out.json"
    path.write_text(INSTANCE, encoding="utf-8")
    code, _, error = run("lengths", path, "--static", text, "--out", out)
    assert (code in (2, 3), message in error, out.exists()) == (True, True, False)
    with pytest.raises(PlannerError):
        static_step(two_nodes(), text)
