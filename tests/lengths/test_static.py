"""The step of a strategy that the user names."""

from functools import cache
from pathlib import Path

import pytest

from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.lengths.tour import best_single
from solver.lengths.candidates import candidates
from solver.lengths.static import static_step
from tests.command_line import run
from tests.conftest import present, text_of
from tests.mixed_lengths import replaced
from tests.refusals import refusals

INSTANCE = text_of("spaces/two_nodes.yaml")


def instance(**changes: str) -> Instance:
    return replaced(INSTANCE, changes)


@cache
def best_ns(**changes: str) -> int:
    """Of all strategies that the search finds."""
    return present(best_single(candidates(instance(**changes)).mixed)).step_ns


def test_a_named_strategy_takes_what_its_search_alone_gives() -> None:
    """Inside nodes that of an instance whose lists have nothing else; never below the best."""
    for tp, dp, pp in ((4, 2, 1), (2, 2, 2)):
        alone = f"pipeline_parallel: [{pp}], data_parallel: [{dp}], tensor_parallel: [{tp}]"
        name, step_ns = static_step(instance(), f"tp={tp}, dp={dp},pp={pp}")
        assert step_ns == best_ns(**{"pipeline_parallel: [1, 2]": alone}) >= best_ns()
        assert name.startswith(f"dp {dp}, tp {tp}, pp {pp}")


def test_tensor_groups_of_two_nodes_are_slower_than_those_of_one() -> None:
    """Their traffic crosses the network: slower than the best, faster on a faster network."""
    _, wide_ns = static_step(instance(), "dp=1,tp=8,pp=1")
    assert wide_ns > best_ns()
    faster = instance(**{"100 Gbit/s": "400 Gbit/s"})
    assert static_step(faster, "dp=1,tp=8,pp=1")[1] < wide_ns


@refusals("static")
def test_no_strategies_are_refused(text: str, message: str, tmp_path: Path) -> None:
    """In one line, by the command, before anything is written."""
    path, out = tmp_path / "x.yaml", tmp_path / "out.json"
    path.write_text(INSTANCE, encoding="utf-8")
    code, _, error = run("lengths", path, "--static", text, "--out", out)
    assert (code in (2, 3), message in error, out.exists()) == (True, True, False)
    with pytest.raises(PlannerError):
        static_step(instance(), text)
