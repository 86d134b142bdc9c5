"""Tests of solver.verify.mixed_strategies: what strategies and switches of a file take."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from solver.evaluate.evaluation import row_plans
from solver.files import sealed
from solver.lengths.candidates import candidates
from solver.lengths.choose import build_lengths, choose
from solver.lengths_document import LengthsDocument
from solver.verify import Verification, verify_lengths
from tests.mixed_rows import OTHER_NODE, small

Fields = dict[str, Any]


@cache
def written(**changes: str) -> LengthsDocument:
    """The best step of the small instance, changed; its strategies are those of its search."""
    instance = small(**changes)
    found = candidates(instance)
    plans = row_plans(instance, found)
    chosen = choose(found.mixed, "ascending")
    return build_lengths(chosen, instance.workload.name, instance, plans, found.above)


def switching() -> LengthsDocument:
    """One with many short sequences, of which the step has a switch."""
    return written(
        **{
            "count: 40": "count: 400",
            "8000, count: 2}": "40000, count: 1}",
            "layers: 8": "layers: 14",
        }
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"search: {zero: 1}": "search: {target: any, zero: [0, 2, 3], recompute: [none, full]}"},
        {"search": OTHER_NODE},
        {"count: 2}]": "count: 2}]\n  rows: padded"},
        {"count: 2}]": "count: 2}]\n  rows: padded", "search": OTHER_NODE},
        {"tied_embeddings: false": "tied_embeddings: true"},
    ],
)
def test_strategies_are_recounted(changes: dict[str, str]) -> None:
    """Of every plan the rows, room, reduction and optimizer; with ZeRO, mixed GPUs, padded rows."""
    found = verify_lengths(written(**changes))
    assert found.complete, (found.problems, found.reservations)
    assert any("reduction of gradients" in line for line in found.checked)


def test_switches_of_the_step_have_plans() -> None:
    """Parameters and gradients apart, in the time of the table."""
    document = switching()
    assert document.switches
    assert len(document.switch_plans) >= len(document.switches)
    assert verify_lengths(document).complete


def _scaled(fields: Fields, name: str, factor: float) -> None:
    number = type(fields[name])
    fields[name] = number(fields[name] * factor)


def _strategy(document: Fields) -> Fields:
    """The one that runs first."""
    found: Fields = document["problem"]["strategies"][document["groups"][0]["strategy"]]
    return found


def _every_row(name: str, factor: float) -> Callable[[Fields], None]:
    def forge(document: Fields) -> None:
        for one in _strategy(document)["replicas"]:
            _scaled(one if name in one else one["time"], name, factor)

    return forge


def _once(name: str, factor: float) -> Callable[[Fields], None]:
    return lambda document: _scaled(document["problem"]["strategies"][-1], name, factor)


def _plan(document: Fields) -> Fields:
    found: Fields = document["plans"][document["groups"][0]["strategy"]]
    return found


def _few_rows(document: Fields) -> None:
    """A plan that holds fewer micro-batches than a stage does in a longer step."""
    for plan in document["plans"]:
        for replica in plan["replicas"]:
            replica["micro_batches"] = 1


def _quicker_gpus(document: Fields) -> None:
    """Plans of another instance than that of the file."""
    for plan in document["plans"]:
        _scaled(plan["instance"]["cluster"]["groups"][0]["gpu"], "memory_bandwidth_bytes_per_s", 2)


def _other_machines(document: Fields) -> None:
    """Switch plans on quicker links."""
    for plan in document["switch_plans"]:
        for group in plan["cluster"]["groups"]:
            _scaled(group["intra_node"], "bandwidth_bytes_per_s", 2)


def _unused_switch(factor: float) -> Callable[[Fields], None]:
    """One that the step does not make, as it looks at that time."""

    def forge(document: Fields) -> None:
        row = document["problem"]["switching"]["parameters_ns"][1]
        row[0] = int(row[0] * factor)

    return forge


def _free_stay(document: Fields) -> None:
    document["problem"]["switching"]["gradients_ns"][1][1] = 5


def _parameters_back(document: Fields) -> None:
    document["problem"]["switching"]["parameters_return"] = True


def _swapped_plans(document: Fields) -> None:
    document["plans"].reverse()


@pytest.mark.parametrize(
    "forge",
    [
        _every_row("per_square_ns", 0.97),
        _every_row("per_token_ns", 0.99),
        _every_row("per_token_ns", 1.01),
        _every_row("per_row_ns", 2),
        _every_row("longest_row", 2),
        _once("visit_ns", 0.9),
        _once("anchor_ns", 1.1),
        lambda document: document["above"].reverse(),
        lambda document: document["plans"].pop(),
        lambda document: document["switch_plans"].clear(),
        lambda document: _plan(document)["replicas"].reverse(),
        lambda document: _scaled(document["problem"]["atoms"][0], "count", 2),
        lambda document: _scaled(document["switch_plans"][0], "time_s", 0.5),
        _few_rows,
        _quicker_gpus,
        _other_machines,
        _swapped_plans,
        lambda document: _strategy(document).update(name="dp 8, tp 1, pp 1"),
        _unused_switch(0.3),
        _unused_switch(3),
        _free_stay,
        _parameters_back,
    ],
)
def test_no_strategy_can_be_forged(forge: Callable[[Fields], None]) -> None:
    """What is changed, chosen from and sealed anew throughout is refused."""
    fields = json.loads(switching().model_dump_json())
    forge(fields)
    assert _honest(fields).problems


def _row(change_ns: int) -> Callable[[Fields], None]:
    """The longest of a replica's rows."""

    def forge(document: Fields) -> None:
        document["problem"]["strategies"][-1]["replicas"][-1]["time"]["rows_ns"][-1][1] += change_ns

    return forge


def _curves(document: Fields) -> None:
    """Times that are above those of all rows, as packed ones have them."""
    for one in document["problem"]["strategies"][0]["replicas"]:
        one["time"]["per_row_ns"] = one["time"].pop("rows_ns")[-1][1]


@pytest.mark.parametrize("forge", [_row(-1), _row(1), _curves])
def test_no_padded_row_can_be_forged(forge: Callable[[Fields], None]) -> None:
    """Not by a ns, of any length, nor with a curve above it."""
    padded = written(**{"count: 2}]": "count: 2}]\n  rows: padded", "search": OTHER_NODE})
    fields = json.loads(padded.model_dump_json())
    assert _honest(fields).complete
    forge(fields)
    assert any("rows_ns" in problem for problem in _honest(fields).problems)


def _honest(fields: Fields) -> Verification:
    """Verified with the step that is the best one of the forged problem."""
    forged = LengthsDocument.model_validate_json(json.dumps(fields))
    chosen = choose(forged.problem, "ascending")
    document = build_lengths(chosen, forged.workload, forged.instance, (), forged.above)
    plans = {name: tuple(map(sealed, getattr(forged, name))) for name in ("plans", "switch_plans")}
    return verify_lengths(sealed(document.model_copy(update=plans)))
