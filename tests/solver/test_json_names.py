"""Names in machine-readable output that scripts rely on. Adding is fine, renaming is not."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import pytest

from formulations.instance.instance import Instance, Limits, LimitsFile
from formulations.instance.load import InstanceFile
from formulations.instance.search import SearchFile, SearchSpace
from solver.comparison import Comparison
from solver.files import to_json
from solver.report.compared import comparison_json
from solver.result import Proof, Result, Status, Termination
from tests.command_line import output
from tests.conftest import ROOT
from tests.hand_made import document_of, heuristic_result, pipelined_result, planless_result
from tests.small_instances import random_instance
from tests.solver.test_comparison import PLAN

NAMES = {
    path: words.split()
    for path, _, words in (
        line.partition(":")
        for line in (ROOT / "tests" / "data" / "json_names.txt").read_text("utf-8").splitlines()
    )
}


def fields() -> Any:
    """The object that `solve --json` prints for a plan."""
    return json.loads(to_json(document_of(pipelined_result())))


def objects_at(value: Any, path: Sequence[str]) -> Iterator[dict[str, Any]]:
    """All objects at a path of names, through lists."""
    if isinstance(value, list):
        for one in value:
            yield from objects_at(one, path)
    elif path:
        yield from objects_at(value[path[0]], path[1:])
    else:
        yield value


@pytest.mark.parametrize("path", NAMES)
def test_names_stay(path: str) -> None:
    """Scripts rely on the names in json_names.txt: every object there has all of them."""
    what, *inner = path.split(".")
    printed: dict[str, Callable[[], Any]] = {
        "comparison": lambda: comparison_json(Comparison(random_instance(0), (PLAN,))),
        "plan": fields,
        "workload": lambda: json.loads(output("catalogue", "bert-large", "--json")),
    }
    found = list(objects_at(printed[what](), inner))
    assert found
    assert all(set(one) >= set(NAMES[path]) for one in found)


def test_words_for_what_closed_the_configs() -> None:
    """Of those that a plan file may have, these stay."""
    assert set(get_args(Proof)) >= {"memory", "limit", "work", "pipeline"}
    assert set(get_args(Proof)) >= {"enumeration", "cpsat", "milp"}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (pipelined_result(), ("optimal", "closed")),
        (heuristic_result(), ("feasible", "heuristic")),
        (planless_result(Status.INFEASIBLE, Termination.CLOSED), ("infeasible", "closed")),
        (planless_result(Status.UNKNOWN, Termination.TIME_LIMIT), ("unknown", "time_limit")),
        (planless_result(Status.UNKNOWN, Termination.INTERRUPTED), ("unknown", "interrupted")),
    ],
)
def test_words_for_status_and_termination(result: Result, words: tuple[str, str]) -> None:
    """Lower-case words."""
    found = json.loads(to_json(document_of(result)))
    assert (found["status"], found["termination"]) == words


def test_layers_are_half_open_and_cover_the_chain() -> None:
    """[start, end) of stage k + 1 starts where stage k ends."""
    result = pipelined_result()
    for replica in fields()["replicas"]:
        ends = [0, *(stage["layers"][1] for stage in replica["stages"])]
        assert [stage["layers"][0] for stage in replica["stages"]] == ends[:-1]
        assert ends[-1] == len(result.instance.workload.layers)


def test_names_of_the_instance_are_those_of_its_file() -> None:
    """What YAML calls `zero` or `micro_batch`, a plan file does too; limits add their unit."""
    assert {*InstanceFile.model_fields, "fused"} == set(Instance.model_fields)
    assert {*SearchFile.model_fields, "split_tokens"} == set(SearchSpace.model_fields)
    units = r"_s$|_bytes$|_usd(?=_per)"
    for name in Limits.model_fields:
        assert re.sub(units, "", name) == (LimitsFile.model_fields[name].validation_alias or name)
