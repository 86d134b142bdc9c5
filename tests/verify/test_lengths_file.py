"""Files of mixed lengths, right and forged."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from formulations.lengths.problem import Rows
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
from tests.resealed import resealed
from tests.seeds import few_and_many

#: What is said of a problem that was not made of an instance.
OF_NO_INSTANCE = "what strategies and switches take: the file holds no instance"


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(40), 14))
def test_what_was_chosen_is_proved(seeds: range, rows: Rows) -> None:
    """All figures and the bound, in ascending order as in any; the least time is that of all steps.

    But where the problem is from, and what CP-SAT says of any order.
    """
    for seed in seeds:
        mixed = random_mixed(seed, rows=rows)
        least = least_ascending_ns(mixed)
        assert (least if least < NEVER else None) == least_ns(mixed, ascending_tours(mixed))
        for order in ("ascending", "free"):
            found = verify_lengths(build_lengths(choose(mixed, order), "toy"))
            left = [text for text in found.reservations if not text.endswith("CP-SAT's word")]
            assert found.ok
            assert left == [OF_NO_INSTANCE]


def test_a_slower_step_is_no_optimum() -> None:
    """A right step with a bound of its own time is refused; without time a file is at its word."""
    mixed = random_mixed(5)
    best, single = choose(mixed, "ascending"), best_single(mixed)
    assert single is not None
    assert single.step_ns > best.step_ns
    tour = Tour(single.strategy, (Group(single.strategy, tuple(range(len(mixed.atoms)))),))
    claimed = replace(best, tour=tour, step_ns=single.step_ns, bound_ns=single.step_ns)
    problems = verify_lengths(build_lengths(claimed, "toy")).problems
    assert any(problem.startswith("lower_bound_s") for problem in problems)
    at_word = verify_lengths(written(*PADDED), Effort(time_limit_s=0.0))
    assert (at_word.ok, len(at_word.reservations)) == (True, 1)


@cache
def written(*changes: tuple[str, str]) -> LengthsDocument:
    """The best step of the small instance, changed; its strategies are those of its search."""
    instance = small(**dict(changes))
    found = candidates(instance)
    plans = row_plans(instance, found)
    chosen = choose(found.mixed, "ascending")
    return build_lengths(chosen, instance.workload.name, instance, plans, found.above)


#: Many short sequences, of which the step has a switch; and rows that are padded.
SWITCHING = (
    ("count: 40", "count: 400"),
    ("8000, count: 2}", "40000, count: 1}"),
    ("layers: 8", "layers: 14"),
)
PADDED = (("count: 2}]", "count: 2}]\n  rows: padded"), ("search", OTHER_NODE))
SHARDED = (("search: {zero: 1}", "search: {target: any, zero: [0, 2, 3]}"),)


@pytest.mark.parametrize("changes", [SWITCHING, PADDED, SHARDED])
def test_strategies_are_recounted(changes: tuple[tuple[str, str], ...]) -> None:
    """Of every plan the rows, room, reduction and optimizer; switches of the step have plans."""
    document = written(*changes)
    found = verify_lengths(document)
    assert found.complete, (found.problems, found.reservations)
    assert any("reduction of gradients" in line for line in found.checked)
    assert len(document.switch_plans) >= len(document.switches)
    assert document.switches or changes != SWITCHING


def _scaled(factor: float) -> Callable[[Any], Any]:
    return lambda number: type(number)(number * factor)


def _every_row(name: str, factor: float) -> Callable[[Any], Any]:
    """Of all replicas."""

    def forge(replicas: Any) -> Any:
        for one in replicas:
            fields = one if name in one else one["time"]
            fields[name] = _scaled(factor)(fields[name])
        return replicas

    return forge


def _few_rows(plans: Any) -> Any:
    """Plans that hold fewer micro-batches than a stage does in a longer step."""
    for plan in plans:
        for replica in plan["replicas"]:
            replica["micro_batches"] = 1
    return plans


def _quicker(field: str, machine: str, speed: str) -> Callable[[Any], Any]:
    """Plans of other machines."""

    def forge(plans: Any) -> Any:
        for plan in plans:
            groups = (plan[field] if field == "instance" else plan)["cluster"]["groups"]
            groups[0][machine][speed] *= 2
        return plans

    return forge


def _turned(entries: Any) -> Any:
    return entries[::-1]


FORGERIES: list[tuple[str, Any]] = [
    ("problem.strategies.Q.replicas", _every_row("per_square_ns", 0.97)),
    ("problem.strategies.Q.replicas", _every_row("per_token_ns", 0.99)),
    ("problem.strategies.Q.replicas", _every_row("per_token_ns", 1.01)),
    ("problem.strategies.Q.replicas", _every_row("per_row_ns", 2)),
    ("problem.strategies.Q.replicas", _every_row("longest_row", 2)),
    ("problem.strategies.Q.name", "dp 8, tp 1, pp 1"),
    ("problem.strategies.-1.visit_ns", _scaled(0.9)),
    ("problem.strategies.-1.anchor_ns", _scaled(1.1)),
    ("problem.atoms.0.count", _scaled(2)),
    ("problem.switching.parameters_ns.1.0", _scaled(0.3)),  # one that the step does not make
    ("problem.switching.parameters_ns.1.0", _scaled(3)),
    ("problem.switching.gradients_ns.1.1", 5),
    ("problem.switching.parameters_return", True),
    ("above", _turned),
    ("plans", lambda plans: plans[:-1]),
    ("plans", _turned),
    ("plans", _few_rows),
    ("plans", _quicker("instance", "gpu", "memory_bandwidth_bytes_per_s")),
    ("plans.Q.replicas", _turned),
    ("switch_plans", []),
    ("switch_plans", _quicker("cluster", "intra_node", "bandwidth_bytes_per_s")),
    ("switch_plans.0.time_s", _scaled(0.5)),
]


@pytest.mark.parametrize(("path", "value"), FORGERIES)
def test_no_strategy_can_be_forged(path: str, value: object) -> None:
    """What is changed, chosen from and sealed anew throughout is refused."""
    document = written(*SWITCHING)
    path = path.replace("Q", str(document.groups[0].strategy))
    assert _honest(resealed(document, {path: value})).problems


def test_groups_out_of_order_are_named() -> None:
    """By what the order of the file asks."""
    problems = verify_lengths(resealed(written(*SWITCHING), {"groups": _turned})).problems
    assert any(line.endswith("strategies ascending") for line in problems), problems


@pytest.mark.parametrize("more_ns", [-1, 1, None])
def test_no_padded_row_can_be_forged(more_ns: int | None) -> None:
    """Not by a ns, of any length, nor with a curve above all rows, as packed ones have it."""
    padded, path = written(*PADDED), "problem.strategies.-1.replicas.-1.time"

    def forge(time: Any) -> Any:
        *rows, (length, row_ns) = time["rows_ns"]
        if more_ns is None:
            return time | {"rows_ns": [], "per_row_ns": row_ns}
        return time | {"rows_ns": [*rows, (length, row_ns + more_ns)]}

    assert _honest(padded).complete
    problems = _honest(resealed(padded, {path: forge})).problems
    assert any("rows_ns" in problem for problem in problems)


def _honest(forged: LengthsDocument) -> Verification:
    """Verified with the step that is the best one of the forged problem."""
    chosen = choose(forged.problem, "ascending")
    document = build_lengths(chosen, forged.workload, forged.instance, (), forged.above)
    plans = {name: tuple(map(sealed, getattr(forged, name))) for name in ("plans", "switch_plans")}
    return verify_lengths(sealed(document.model_copy(update=plans)))
