"""Plan files: names that scripts rely on, and values that none can have."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from formulations.instance.instance import Instance, Limits, LimitsFile
from formulations.instance.load import InstanceFile
from formulations.instance.search import SearchFile, SearchSpace
from solver.document import PlanDocument
from solver.files import to_json
from solver.report.compared import comparison_json
from solver.result import Comparison
from tests.command_line import output
from tests.conftest import text_of
from tests.hand_made import document_of, pipelined_result
from tests.refusals import refusal, refusals
from tests.small_instances import random_instance
from tests.solver.test_result import PLAN
from tests.verify.forgeries import change

LINES = text_of("json_names.txt").splitlines()


def objects_at(value: Any, path: Sequence[str]) -> Iterator[dict[str, Any]]:
    """All objects at a path of names, through lists."""
    if isinstance(value, list):
        for item in value:
            yield from objects_at(item, path)
    elif path:
        yield from objects_at(value[path[0]], path[1:])
    else:
        yield value


@pytest.mark.parametrize("line", LINES)
def test_names_stay(line: str) -> None:
    """Scripts rely on the names in json_names.txt: every object there has all of them."""
    path, _, names = line.partition(":")
    what, *inner = path.split(".")
    printed: dict[str, Callable[[], Any]] = {
        "comparison": lambda: comparison_json(Comparison(random_instance(0), (PLAN,))),
        "plan": lambda: json.loads(to_json(document_of(pipelined_result()))),
        "workload": lambda: json.loads(output("catalogue", "bert-large", "--json")),
    }
    objects = list(objects_at(printed[what](), inner))
    assert objects
    assert all(set(fields) >= set(names.split()) for fields in objects)


def test_names_of_the_instance_are_those_of_its_file() -> None:
    """What YAML calls `zero` or `micro_batch`, a plan file does too; limits add their unit."""
    assert {*InstanceFile.model_fields, "fused"} == set(Instance.model_fields)
    assert {*SearchFile.model_fields, "split_tokens"} == set(SearchSpace.model_fields)
    units = r"_s$|_bytes$|_usd(?=_per)"
    for name in Limits.model_fields:
        assert re.sub(units, "", name) == (LimitsFile.model_fields[name].validation_alias or name)


@refusals("plan_values")
def test_bug_hostile_plan_file_is_one_line(text: str, message: str, plan_file: Path) -> None:
    """Names that cannot be printed, sizes that no training has: refused before they cost much."""
    path, value = text.split(" = ")
    fields = json.loads(plan_file.read_text(encoding="utf-8"))
    change(fields, path, json.loads(value))
    plan_file.write_text(json.dumps(fields), encoding="utf-8")
    told = refusal(lambda: PlanDocument.read(plan_file))
    assert f" {message}" in told
    assert told.isprintable()
