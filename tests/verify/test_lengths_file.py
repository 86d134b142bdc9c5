"""Tests of solver.verify.lengths_file: files of mixed lengths, right and forged."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from formulations.lengths.problem import Order, Rows
from formulations.lengths.strategy_time import NEVER
from formulations.lengths.tour import Group, Tour, best_single
from solver.evaluate.evaluation import row_plans
from solver.files import sealed
from solver.lengths.candidates import candidates
from solver.lengths.choose import build_lengths, choose
from solver.lengths_document import LengthsDocument
from solver.verify import Effort, Verification, verify_lengths
from solver.verify.lengths_file import least_ascending_ns
from tests.mixed_lengths import ascending_tours, least_ns, random_mixed
from tests.mixed_rows import OTHER_NODE, small
from tests.seeds import few_and_many

#: What is said of a problem that was not made of an instance.
OF_NO_INSTANCE = "what strategies and switches take: the file holds no instance"


@cache
def of_random(seed: int, order: Order, rows: Rows = "packed") -> LengthsDocument:
    """The file of a random problem."""
    return build_lengths(choose(random_mixed(seed, rows=rows), order), "toy")


def proved(document: LengthsDocument) -> bool:
    """Whether all is, but where the problem is from, and what CP-SAT says of any order."""
    found = verify_lengths(document)
    left = [text for text in found.reservations if not text.endswith("CP-SAT's word")]
    return found.ok and left == [OF_NO_INSTANCE]


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(40), 10))
def test_what_was_chosen_is_proved(seeds: range, rows: Rows) -> None:
    """All figures and the bound, in ascending order as in any."""
    for seed in seeds:
        for order in ("ascending", "free"):
            assert proved(of_random(seed, order, rows))


def test_a_slower_step_is_no_optimum() -> None:
    """A right step with a bound of its own time is refused where a faster one is known."""
    mixed = random_mixed(5)
    best = choose(mixed, "ascending")
    single = best_single(mixed)
    assert single is not None
    assert single.step_ns > best.step_ns
    tour = Tour(single.strategy, (Group(single.strategy, tuple(range(len(mixed.atoms)))),))
    claimed = replace(best, tour=tour, step_ns=single.step_ns, bound_ns=single.step_ns)
    found = verify_lengths(build_lengths(claimed, "toy"))
    assert any(problem.startswith("lower_bound_s") for problem in found.problems)


def test_no_time_leaves_the_file_at_its_word() -> None:
    """Nothing is wrong, and nothing proved."""
    found = verify_lengths(of_random(5, "ascending"), Effort(time_limit_s=0.0))
    assert found.ok
    assert len(found.reservations) == 1


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(60), 15))
def test_least_ascending_time_is_that_of_all_steps(seeds: range, rows: Rows) -> None:
    """Worked out from the last sequences back, it is the least over all steps there are."""
    for seed in seeds:
        mixed = random_mixed(seed, rows=rows)
        expected = least_ns(mixed, ascending_tours(mixed))
        found = least_ascending_ns(mixed)
        assert (found if found < NEVER else None) == expected


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
        lambda document: document["plans"].reverse(),
        lambda document: _strategy(document).update(name="dp 8, tp 1, pp 1"),
        _unused_switch(0.3),
        _unused_switch(3),
        lambda document: document["problem"]["switching"]["gradients_ns"][1].__setitem__(1, 5),
        lambda document: document["problem"]["switching"].update(parameters_return=True),
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
