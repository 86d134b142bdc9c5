"""The verifier's own proofs of what a log claims; wrong bounds planted in it, and forged logs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest

from formulations.costs.tables import build_tables
from formulations.decisions import Decisions
from formulations.errors import InstanceError
from formulations.instance import Instance, Link
from formulations.instance.load import load_family
from formulations.plan import Plan
from formulations.space import PlanSpace, configs
from solver.bounds.closed_forms import ClosedForms
from solver.bounds.packing import Packing
from solver.document import PlanDocument
from solver.enumeration import engine, uneven_shares
from solver.graph import edges
from solver.heuristics.local import local_plans
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import ConfigRecord, Proof, Reason, Result, SearchLog, Status
from solver.search import enumeration, fathoming, incumbents
from solver.search.driver import solve
from solver.verify import Effort, cascade, orders, verify_document
from solver.verify.bounds import ANY_TIME_NS, Clock, Prover
from tests import brute_force
from tests.certified import certified_document
from tests.certified_cases import CASES
from tests.random_configs import crowded_instance, unlike_replicas
from tests.resealed import forged
from tests.seeds import one_each
from tests.small_instances import random_instance

ROOT = Path(__file__).resolve().parents[2]

#: All that a log may say of a configuration that it closes.
CLOSINGS: tuple[tuple[Reason, Proof], ...] = (
    ("solved", "enumeration"),
    ("solved", "cpsat"),
    ("bounded", "milp"),
    ("bounded", "packing"),
    ("infeasible", "cpsat"),
    ("infeasible", "memory"),
)


@cache
def several() -> PlanDocument:
    """A certified file with configurations whose best plans an exhaustive search found."""
    return certified_document(crowded_instance(10))


def searched(document: PlanDocument) -> list[int]:
    """Entries of the log that an exhaustive search closed."""
    closed_by = [record.proof for record in document.closed_configs]
    return [i for i, proof in enumerate(closed_by) if proof in ("enumeration", "cpsat", "milp")]


@pytest.mark.parametrize("case", one_each(["several", *CASES], 3))
def test_true_claims_are_proved_again(case: str) -> None:
    """All that certified plan files claim."""
    document = several() if case == "several" else CASES[case]()
    assert verify_document(document).complete


@pytest.mark.parametrize("proof", ["work", "packing", "enumeration", "cpsat"])
def test_an_argument_is_not_taken_at_its_name(proof: Proof) -> None:
    """Whatever a configuration is said to be closed by, what holds is proved by some argument."""
    document = several()
    proofs = {
        f"closed_configs.{i}.proof": proof
        for i, record in enumerate(document.closed_configs)
        if record.reason == "bounded"
    }
    assert verify_document(forged(document, proofs)).complete


def false_claim(proof: str = "enumeration") -> tuple[PlanDocument, int]:
    """A file in which one entry claims 1 ns more than the best plan of its configuration takes."""
    document = several()
    index = searched(document)[-1]
    best = brute_force.optimum_ns(
        build_tables(document.instance, document.closed_configs[index].config)
    )
    assert best is not None
    changes = {"bound_ns": best + 1, "proof": proof, "reason": "bounded"}
    path = f"closed_configs.{index}"
    return forged(document, {f"{path}.{key}": v for key, v in changes.items()}), index


@pytest.mark.parametrize("proof", ["work", "filling", "packing", "pipeline", "enumeration", "milp"])
def test_false_claim_is_refuted_with_a_plan(proof: str) -> None:
    """Field, what it claims, and the step time and layout of a plan that is faster."""
    document, index = false_claim(proof)
    bound_ns = document.closed_configs[index].bound_ns
    assert bound_ns is not None
    problems = verify_document(document).problems
    [problem] = [line for line in problems if line.startswith(f"closed_configs[{index}].bound_ns")]
    assert problem.startswith(
        f"closed_configs[{index}].bound_ns: found {bound_ns}, expected a bound of at most "
        f"{bound_ns - 1}, the step time of a plan: nodes "
    )
    assert "; layers 0-" in problem


def slow_plans(instance: Instance) -> Iterator[tuple[int, Plan]]:
    """The slowest plan of every configuration, with its step time."""
    for config in configs(instance):
        tables = build_tables(instance, config)
        found = []
        for order in brute_force.all_orders(tables):
            placed = brute_force.place(tables, order)
            choices = product(brute_force.all_splits(tables), brute_force.all_shares(tables))
            for split, share in choices:
                if brute_force.fits(tables, placed, split, share):
                    time_ns = brute_force.step_time_ns(tables, placed, split, share)
                    found.append((time_ns, order, split, share))
        if found:
            time_ns, *rest = max(found)
            yield time_ns, Decisions(*rest).plan(tables)


@cache
def slowest() -> tuple[Result, int, Plan]:
    """The best plan of an instance, and a plan 2.3 times slower."""
    true = solve(random_instance(25))
    time_ns, plan = max(slow_plans(true.instance), key=lambda one: one[0])
    assert true.step_time_ns is not None
    assert time_ns > 2.3 * true.step_time_ns
    return true, time_ns, plan


def forgery(reason: Reason, proof: Proof) -> PlanDocument:
    """The slowest plan of all, called optimal, every other config closed like this; sealed."""
    true, time_ns, plan = slowest()
    bound_ns = None if reason == "infeasible" else time_ns
    log = tuple(
        ConfigRecord(config=config, reason=reason, proof=proof, bound_ns=bound_ns)
        if config != plan.config
        else ConfigRecord(config=config, reason="solved", proof="enumeration", bound_ns=time_ns)
        for config in configs(true.instance)
    )
    result = replace(
        true,
        plan=plan,
        step_time_ns=time_ns,
        objective=float(time_ns),
        bound=float(time_ns),
        log=SearchLog(configs=log),
    )
    return build_document(result, SolveOptions())


@pytest.mark.parametrize(("reason", "proof"), CLOSINGS)
def test_bug_forged_proofs_of_a_slow_plan_exit_0(reason: Reason, proof: Proof) -> None:
    """A plan 2.3 times slower than the best, the log made to fit: refused; quickly: not proved."""
    document = forgery(reason, proof)
    assert verify_document(document).problems
    assert not verify_document(document, Effort(prove="quick")).complete


@pytest.mark.parametrize("gap", [-0.1, 1.0, 1e300])
def test_bug_any_gap_could_be_asked_for(gap: float) -> None:
    """With a requested gap of 1 or more any plan would be called optimal."""
    found = verify_document(forged(several(), {"requested_gap": gap}))
    assert any(line.startswith("requested_gap: ") for line in found.problems)


def test_quick_leaves_what_a_search_closed() -> None:
    """What memory and work do not show of it is listed as not proved; nothing is refused."""
    document = certified_document(random_instance(25))
    found = verify_document(document, Effort(prove="quick"))
    assert found.ok
    assert set(found.unproved) <= set(searched(document))
    assert found.unproved
    assert not found.complete


@pytest.mark.parametrize("most_steps", [0, orders.MOST_STEPS])
def test_without_time_all_claims_are_open(most_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is kept with and without a graph of all orders; nothing passes for proved."""
    document = several()
    monkeypatch.setattr(orders, "MOST_STEPS", most_steps)
    found = verify_document(document, Effort(time_limit_s=1e-9))
    assert found.ok
    assert found.unproved


def test_hard_claims_have_their_turn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not settled in its first short time is settled at the end."""
    monkeypatch.setattr(cascade, "FIRST_S", -1.0)
    assert verify_document(several()).complete


def test_interrupted_the_rest_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during a proof: what was proved before stays so, the rest is listed."""

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(cascade, "searched", interrupted)
    found = verify_document(several())
    assert found.ok
    assert "nothing more: interrupted" in found.checked
    assert found.unproved


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
    """Whole blocks are said to close a configuration at 1.9 times the time at which they do."""
    return lambda packing, below_ns: true(packing, below_ns * 10 // 19)


def one_stage(true: Any) -> Any:
    """No model is said to fit on one stage."""
    return lambda intervals: true(intervals) or intervals.tables.config.pp == 1


#: Wrong bounds that may creep into a search.
PLANTED: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "split": (engine, "tighten", split_bound),
    "bottleneck": (edges, "bottlenecks", bottleneck),
    "config": (enumeration, "config_bound_ns", stretched),
    "lanes": (uneven_shares, "shared_out", lane_bound),
    "work": (ClosedForms, "work_ns", stretched),
    "filling": (ClosedForms, "filling_ns", stretched),
    "packing": (Packing, "refutes", eager),
    "memory": (fathoming, "lacks_memory", one_stage),
}


#: Instances on which a search goes by the bound that is planted.
FAMILIES: dict[str, Callable[[int], Sequence[Instance]]] = {
    "": lambda seed: (random_instance(seed), crowded_instance(seed)),
    "config": lambda seed: (crowded_instance(seed), unlike_replicas(seed, single=False)),
    "lanes": lambda seed: (unlike_replicas(seed),),
}

#: Seeds that are likely to show it; the others follow.
LIKELY: dict[str, tuple[int, ...]] = {"config": (17,), "filling": (7, 13), "bottleneck": (9, 13)}


@cache
def best_known(family: str, seed: int) -> list[tuple[Instance, float | None]]:
    """The instances of a family with their least objectives."""
    return [(one, solve(one).objective) for one in FAMILIES[family](seed)]


def hidden(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlanDocument]:
    """Plan files of searches that miss the best plan by a planted bound.

    Without heuristics, so that the search has to find its plans itself; but packing is asked only
    where a plan is known.
    """
    where, what, wrong = PLANTED[name]
    known = int(name == "packing")
    for rule in ("megatron_rule", "minmax_plan", "equal_split_plan"):
        monkeypatch.setattr(incumbents, rule, lambda *_, **__: None)
    monkeypatch.setattr(
        incumbents, "local_plans", lambda *words: islice(local_plans(*words), known)
    )
    monkeypatch.setattr(incumbents, "surveyed_plan", lambda *_: None)
    for seed in dict.fromkeys((*LIKELY.get(name, ()), *range(30))):
        for instance, best in best_known(name if name in FAMILIES else "", seed):
            with monkeypatch.context() as planted:
                planted.setattr(where, what, wrong(getattr(where, what)))
                result = solve(instance)
            if best is not None and (result.objective or float("inf")) > best:
                yield build_document(result, SolveOptions())


@pytest.mark.parametrize("name", one_each(list(PLANTED), 2))
def test_wrong_bound_in_the_search_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that calls a worse plan optimal, or none possible, is refused with the reason."""
    wanted = 1 if name == "config" else 2  # no other seed shows it
    documents = list(islice(hidden(name, monkeypatch), wanted))
    assert documents
    for document in documents:
        assert document.status in (Status.OPTIMAL, Status.INFEASIBLE)
        assert verify_document(document).problems


def test_wrong_bound_is_caught_lane_by_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are too many orders to go through, the verifier finds the faster plan too."""
    documents = list(islice(hidden("lanes", monkeypatch), 2))
    assert documents
    monkeypatch.setattr(cascade, "exhaust", lambda *_: None)
    assert all(verify_document(document).problems for document in documents)


def test_bug_nodes_of_a_single_lane_were_dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages of four replicas on half a node each: over node orders, in a fiftieth of the time."""
    family = load_family(ROOT / "instances" / "aws_gpt2xl.yaml")
    prover = Prover(PlanSpace(family.instance))
    config = next(
        config
        for config in prover.space.configs_of((1, 7))
        if (config.dp, config.pp, config.zero) == (4, 16, 0)
    )
    monkeypatch.setattr(cascade, "exhaust_lanes", None)
    claim = cascade.Claim(0, config, 710_671_452)  # 0.1 % below the best plan of the cluster
    assert cascade.searched(prover, claim, Clock()).argument == "trial"


def test_bug_links_that_take_years_stood_for_a_lack_of_memory() -> None:
    """No plan being faster than any time shows that none fits only where times stay below that."""
    groups = [
        group.but(inter_node=Link(bandwidth_bytes_per_s=1e-3, latency_s=0))
        for group in random_instance(25).cluster.groups
    ]
    instance = random_instance(25).but(cluster={"groups": tuple(groups)})
    wide = next(config for config in configs(random_instance(25)) if sum(config.nodes_used) > 1)
    prover = Prover(PlanSpace(instance))
    with pytest.raises(InstanceError, match="the slowest link needs"):
        cascade.quick_verdicts(prover, [cascade.Claim(0, wide, ANY_TIME_NS, nothing_fits=True)])
