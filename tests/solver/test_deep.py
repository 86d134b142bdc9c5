"""Second opinions on what a log claims at the word of a search; wrong bounds planted in it."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import pytest

from formulations.costs.tables import build_tables
from formulations.instance import Instance
from solver import deep
from solver.bounds import uneven
from solver.bounds.closed_forms import Bounds
from solver.bounds.packing import Packing
from solver.deep import opinions
from solver.document import PlanDocument
from solver.enumeration import engine
from solver.heuristics.local import local_plans
from solver.layered import graph
from solver.options import SolveOptions
from solver.report.document import build_document
from solver.result import Status
from solver.search import closer, closing, driver
from solver.search.driver import solve
from solver.verify import lanes, orders, verify_document
from tests import brute_force
from tests.certified import certified_document
from tests.certified_cases import CASES
from tests.random_shapes import crowded_instance, unlike_replicas
from tests.resealed import forged
from tests.small_instances import random_instance


def several() -> PlanDocument:
    """A certified file with shapes whose best plans an exhaustive search found."""
    return certified_document(random_instance(8), at_once=False)


def searched(document: PlanDocument) -> list[int]:
    """Entries of the log that an exhaustive search closed."""
    closed_by = [record.proof for record in document.closed_shapes]
    return [i for i, proof in enumerate(closed_by) if proof in ("enumeration", "cpsat", "milp")]


def verdicts(document: PlanDocument) -> list[tuple[str, str]]:
    """Verdicts on all these, and by what."""
    found = opinions(document, searched(document))
    return [(one.reproof.verdict, one.reproof.by) for one in found]


@pytest.mark.parametrize("case", [*CASES, "several"])
def test_true_claims_are_proved_again(case: str) -> None:
    """All that certified plan files claim of exhaustive searches."""
    document = several() if case == "several" else CASES[case]()
    assert set(verdicts(document)) <= {("proved", "exhaustion")}


def false_claim(proof: str = "enumeration") -> tuple[PlanDocument, int]:
    """A file in which one entry claims 1 ns more than the best plan of its shape takes."""
    document = several()
    index = searched(document)[0]
    best = brute_force.optimum_ns(
        build_tables(document.instance, document.closed_shapes[index].shape)
    )
    assert best is not None
    changes = {"bound_ns": best + 1, "proof": proof, "reason": "bounded"}
    path = f"closed_shapes.{index}"
    return forged(document, {f"{path}.{key}": v for key, v in changes.items()}), index


def test_false_claim_is_refuted_with_a_plan() -> None:
    """Field, what it claims, and the step time and layout of a plan that is faster."""
    document, index = false_claim()
    bound_ns = document.closed_shapes[index].bound_ns
    assert bound_ns is not None
    [one] = opinions(document, [index])
    problem = one.problem(document.instance)
    assert problem is not None
    assert problem.startswith(
        f"closed_shapes[{index}].bound_ns: found {bound_ns}, expected a bound of at most "
        f"{bound_ns - 1}, the step time of a plan: nodes "
    )
    assert "; layers 0-" in problem


def test_claim_that_nothing_fits_is_refuted_with_a_plan() -> None:
    """A shape that is called infeasible though it has a plan."""
    document = several()
    index = searched(document)[0]
    none = {"reason": "infeasible", "bound_ns": None}
    changed = forged(document, {f"closed_shapes.{index}.{key}": v for key, v in none.items()})
    [one] = opinions(changed, [index])
    problem = one.problem(document.instance)
    assert problem is not None
    assert problem.startswith(f"closed_shapes[{index}].reason: found infeasible, expected a bound")


@pytest.mark.parametrize(
    ("closed_by", "other"),
    [("enumeration", "cpsat"), ("cpsat", "enumeration"), ("milp", "enumeration")],
)
def test_with_too_many_orders_another_engine_is_asked(
    closed_by: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CP-SAT for what enumeration closed, enumeration for what a model closed.

    Unless all nodes are of one size, and lanes tell.
    """
    document = several()
    proofs = {f"closed_shapes.{i}.proof": closed_by for i in searched(document)}
    false, index = false_claim(closed_by)
    monkeypatch.setattr(orders, "MOST_STEPS", 0)
    monkeypatch.setattr(lanes, "MOST_STAGES", 0)
    assert set(verdicts(forged(document, proofs))) == {("proved", other)}
    [one] = opinions(false, [index])
    assert (one.reproof.verdict, one.reproof.by) == ("refuted", other)


@pytest.mark.parametrize("most_steps", [0, orders.MOST_STEPS])
def test_without_time_all_claims_are_open(most_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is kept with and without a graph of all orders; nothing passes for proved."""
    document = several()
    monkeypatch.setattr(orders, "MOST_STEPS", most_steps)
    left = list(opinions(document, searched(document), time_limit_s=1e-9))
    assert {one.reproof.verdict for one in left} == {"open"}
    assert [one.index for one in left] == searched(document)


def test_hard_claims_have_their_turn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not settled in its first short time is settled at the end."""
    document = several()
    monkeypatch.setattr(deep, "FIRST_S", -1.0)
    assert set(verdicts(document)) == {("proved", "exhaustion")}


def split_bound(true: Any) -> Any:
    """The enumeration drops what is not below 0.7 of the cutoff."""
    return lambda problem, layers, cutoff: true(problem, layers, cutoff * 7 // 10)


def lane_bound(true: Any) -> Any:
    """A lane is said to have no more micro-batches than in 0.7 of the time."""
    return lambda problem, room, cutoff, least: true(problem, room, cutoff * 7 // 10, least)


def bottleneck(true: Any) -> Any:
    """A stage is said to be busy 1.6 times as long as it is."""
    return lambda *arguments: true(*arguments) * 8 // 5


def stretched(true: Any) -> Any:
    """A bound in ns is 1.9 times as high as it should be."""
    return lambda *arguments: true(*arguments) * 19 // 10


def eager(true: Any) -> Any:
    """Whole blocks are said to close a shape at 1.9 times the time at which they do."""
    return lambda packing, below_ns: true(packing, below_ns * 10 // 19)


def one_stage(true: Any) -> Any:
    """No model is said to fit on one stage."""
    return lambda intervals: true(intervals) or intervals.tables.shape.pp == 1


#: Wrong bounds that may creep into a search, and who finds out: verify, or only verify --deep.
PLANTED: dict[str, tuple[Any, str, Callable[[Any], Any], str]] = {
    "split": (engine, "tighten", split_bound, "deep"),
    "bottleneck": (graph, "bottlenecks", bottleneck, "deep"),
    "shape": (closing, "shape_bound_ns", stretched, "deep"),
    "lanes": (uneven, "shared_out", lane_bound, "deep"),
    "work": (Bounds, "work_ns", stretched, "verify"),
    "filling": (Bounds, "filling_ns", stretched, "verify"),
    "packing": (Packing, "refutes", eager, "verify"),
    "memory": (closer, "lacks_memory", one_stage, "verify"),
}


#: Instances on which a search goes by the bound that is planted.
FAMILIES: dict[str, Callable[[int], Sequence[Instance]]] = {
    "": lambda seed: (random_instance(seed), crowded_instance(seed)),
    "shape": lambda seed: (unlike_replicas(3 * seed, single=False),),
    "lanes": lambda seed: (unlike_replicas(seed),),
}


def hidden(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlanDocument]:
    """Plan files of searches that miss the best plan by a planted bound.

    Without heuristics, so that the search has to find its plans itself; but packing is asked only
    where a plan is known.
    """
    where, what, wrong, _ = PLANTED[name]
    known = int(name == "packing")
    for rule in ("megatron_rule", "minmax_plan", "equal_split_plan"):
        monkeypatch.setattr(driver, rule, lambda *_, **__: None)
    monkeypatch.setattr(driver, "local_plans", lambda *words: islice(local_plans(*words), known))
    monkeypatch.setattr(driver, "surveyed_plan", lambda *_: None)
    for seed in range(30):
        for instance in FAMILIES.get(name, FAMILIES[""])(seed):
            best = solve(instance).objective
            with monkeypatch.context() as planted:
                planted.setattr(where, what, wrong(getattr(where, what)))
                result = solve(instance)
            if best is not None and (result.objective or float("inf")) > best:
                yield build_document(result, SolveOptions())


@pytest.mark.parametrize("name", PLANTED)
def test_wrong_bound_in_the_search_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that calls a worse plan optimal, or none possible, is refused with the reason."""
    documents = list(islice(hidden(name, monkeypatch), 2))
    assert documents
    for document in documents:
        assert document.status in (Status.OPTIMAL, Status.INFEASIBLE)
        verification = verify_document(document)
        assert verification.ok == (PLANTED[name][3] == "deep")
        if verification.ok:
            second = opinions(document, verification.by_word)
            assert any(one.problem(document.instance) for one in second)


def test_wrong_bound_is_caught_lane_by_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are too many orders to go through, the verifier finds the faster plan too."""
    documents = list(islice(hidden("lanes", monkeypatch), 2))
    assert documents
    monkeypatch.setattr(deep, "exhaust", lambda *_: None)
    monkeypatch.setattr(deep, "by_other_engine", lambda *_: pytest.fail("not asked"))
    for document in documents:
        second = opinions(document, searched(document))
        assert any(one.problem(document.instance) for one in second)
