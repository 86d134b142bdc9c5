"""Promises of formulations.instance.validation: what is wrong with a file, line by line."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from formulations.errors import MOST_LINES, InstanceError
from tests.instance_texts import MINIMAL, PROFILE, parsed


def _paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        yield from _paths(value[key], (*path, key))  # type: ignore[index]


FULL = yaml.safe_load(
    MINIMAL
    + PROFILE
    + "search: {tensor_parallel: [1, 2], micro_batch: 4}\n"
    + "limits: {memory_headroom: 5 %, max_step_time: 2 s}\n"
    + "objective: {minimize: step_time, steps: 5}\n"
)


JUNK = [None, True, 0, -1, 10**30, 1.5, float("nan"), "", "x", "a\nb", [], [[1]], {}, {1: 2}]


def _errors_of(text: str) -> list[str]:
    """The lines that loading the text gives."""
    try:
        parsed(text)
    except InstanceError as error:
        return str(error).split("\n")
    return []


def test_junk_in_any_field_gives_lines() -> None:
    """Whatever stands in a field, loading gives an instance or lines with a position each."""
    for i, path in enumerate(_paths(FULL)):
        for junk in JUNK[i % 2 :: 2]:  # half of it in every field, and all of it in neighbours
            value = copy.deepcopy(FULL)
            owner = value
            for key in path[:-1]:
                owner = owner[key]
            owner[path[-1]] = junk
            for line in _errors_of(yaml.safe_dump(value)):
                assert line.isprintable(), (path, junk)
                assert line.startswith("x.yaml:"), (path, junk)


def test_bug_all_errors_of_a_file_are_told_in_its_order() -> None:
    """Wrong words of one section, then names and values that do not fit another part."""
    words = MINIMAL + "search: {recompute_per: never, zero: [9], schedul: 1f1b, micro_batch: 0}\n"
    assert [line.partition(" ")[2].partition(":")[0] for line in _errors_of(words)] == [
        "search.recompute_per",
        "search.zero[0]",
        "search.schedul",
        "search.micro_batch",
    ]
    names = """
name: several
workload: {catalogue: bert}
cluster:
  groups:
    - {name: a, gpu: A100-41, gpus_per_node: 4, nodes: 2, inter_node: Ethernet 41G}
    - {name: b, gpu: A100-40, gpus_per_node: 4, nodes: 2, inter_node: Ethernet 42G}
search: {virtual_pipeline: 2, overlap: none}
objective: {minimize: training_cost}
"""
    rows = [int(line.split(":")[1]) for line in _errors_of(names)]
    assert rows == [3, 6, 6, 7, 8, 8, 9]


def test_bug_what_a_target_cannot_run_hid_all_other_errors() -> None:
    """Every wrong word of `search`, and then what rests on model, profile and machines."""
    text = """
name: several
workload: {catalogue: bert-large, precision: fp8, flash_attention: true}
cluster:
  groups:
    - {name: a, gpu: V100-16, gpus_per_node: 4, nodes: 2, inter_node: 40 Gbit/s}
search:
  schedule: [gpipe, zb-h1]
  micro_batches: uneven
  zero: [1, 3]
  tensor_parallel: 3
  micro_batch: 7
  context_parallel: 16
"""
    rows = [int(line.split(":")[1]) for line in _errors_of(text)]
    assert rows == [3, 3, 8, 8, 9, 10, 11, 12, 13]


def test_errors_beyond_twenty_are_counted() -> None:
    """Every entry of a list of 30 is wrong."""
    lines = _errors_of(MINIMAL + f"search: {{micro_batch: {[0] * 30}}}\n")
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == "and 10 more"


def test_bug_repeated_group_name_hid_other_mistakes() -> None:
    """An unknown GPU and an unknown link of the same groups are told with it."""
    group = "{name: a, gpu: H10, gpus_per_node: 8, nodes: 1, inter_node: 400 Gbit/s}"
    other = "{name: a, gpu: H100, gpus_per_node: 8, nodes: 1, inter_node: nope}"
    text = f"""
name: x
workload: {{catalogue: gpt2}}
cluster:
  groups: [{group}, {other}]
"""
    with pytest.raises(InstanceError) as caught:
        parsed(text)
    fields = [error.where.rpartition(".")[2] for error in caught.value.errors]
    assert sorted(fields) == ["gpu", "inter_node", "name"]


@pytest.mark.parametrize(
    "factors", ["{}", "{block: {}}", "{block: {A100-40: {}}}", "{block: {A100-40: {1: {}}}}"]
)
def test_bug_empty_tables_of_a_calibration_were_a_traceback(factors: str) -> None:
    """At any depth, also beside tables that are not empty."""
    with pytest.raises(InstanceError, match="an empty mapping; allowed: at least 1 entry"):
        parsed(f"{MINIMAL}calibration: {{source: x, factors: {factors}}}")
