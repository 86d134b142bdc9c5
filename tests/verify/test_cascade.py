"""The verifier's own proofs of what a log claims, and of forged logs."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from formulations.costs.tables import build_tables
from formulations.errors import InstanceError
from formulations.instance import Link
from formulations.instance.load import load_family
from formulations.space import PlanSpace, configs, configs_of
from solver.document import PlanDocument
from solver.interrupt import Deadline
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import Proof, Reason, SearchLog
from solver.verify import Effort, cascade, orders, verify_document
from solver.verify.bounds import ANY_TIME_NS, Prover
from tests import brute_force
from tests.certified_cases import CASES, solved_document
from tests.conftest import ROOT, present
from tests.hand_made import result_of, uniform_plans
from tests.random_configs import crowded_instance
from tests.seeds import one_each
from tests.small_instances import random_instance, with_groups
from tests.verify.forgeries import forged


@cache
def several() -> PlanDocument:
    """A plan file with configurations whose best plans an exhaustive search found."""
    return solved_document(crowded_instance(10))


@pytest.mark.parametrize("case", one_each(["several", *CASES], 5))
def test_true_claims_are_proved_again(case: str) -> None:
    document = several() if case == "several" else CASES[case]()
    assert verify_document(document).complete


def test_false_claim_is_refuted_with_a_plan() -> None:
    """1 ns more than the best plan of a config takes: field, claim, and a faster plan are named.

    Whatever the config is said to be closed by; what is true is proved all the same.
    """
    document = several()
    index = next(
        i for i, record in enumerate(document.closed_configs) if record.proof == "enumeration"
    )
    tables = build_tables(document.instance, document.closed_configs[index].config)
    best, path = present(brute_force.optimum_ns(tables)), f"closed_configs.{index}"
    claim = {f"{path}.bound_ns": best, f"{path}.proof": "work", f"{path}.reason": "bounded"}
    assert not [line for line in verify_document(forged(document, claim)).problems if path in line]
    problems = verify_document(forged(document, claim | {f"{path}.bound_ns": best + 1})).problems
    start = (
        f"closed_configs[{index}].bound_ns: found {best + 1}, expected a bound of at most {best}"
    )
    [problem] = [line for line in problems if line.startswith(start)]
    assert "the step time of a plan: nodes " in problem
    assert "; layers 0-" in problem


@pytest.mark.parametrize(("reason", "proof"), [("bounded", "packing"), ("infeasible", "cpsat")])
def test_bug_forged_proofs_of_a_slow_plan_exit_0(reason: Reason, proof: Proof) -> None:
    """A slow plan, the log made to fit: refused; quickly: not proved."""
    instance = random_instance(25)
    slow = max(
        (result_of(instance, plan) for plan in uniform_plans(instance)),
        key=lambda result: result.step_time_ns or 0,
    )
    [solved] = slow.log.configs
    bound_ns = None if reason == "infeasible" else slow.step_time_ns
    closed = solved.but(reason=reason, proof=proof, bound_ns=bound_ns)
    log = SearchLog(
        configs=tuple(
            solved if config == solved.config else closed.but(config=config)
            for config in configs(instance)
        )
    )
    document = build_document(replace(slow, log=log), SolveOptions())
    assert verify_document(document).problems
    assert not verify_document(document, Effort(prove="quick")).complete


@pytest.mark.parametrize("gap", [-0.1, 1.0, 1e300])
def test_bug_any_gap_could_be_asked_for(gap: float) -> None:
    """With a requested gap of 1 or more any plan would be called optimal."""
    asked = forged(several(), {"requested_gap": gap})
    problems = verify_document(asked, Effort(prove="nothing")).problems
    assert any(line.startswith("requested_gap: ") for line in problems)


def interrupted(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("module", "name", "value", "effort"),
    [
        (cascade, "FIRST_S", 0.0, Effort(prove="quick")),
        (orders, "MOST_STEPS", 0, Effort(time_limit_s=1e-9)),
        (cascade, "FIRST_S", 0.0, Effort(time_limit_s=1e-9)),
        (cascade, "searched", interrupted, Effort()),
    ],
)
def test_what_is_not_proved_is_listed(
    module: Any, name: str, value: Any, effort: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quickly, without time, with and without a graph of all orders, or stopped: no problems."""
    monkeypatch.setattr(module, name, value)
    verification = verify_document(several(), effort)
    assert not verification.problems
    assert verification.unproved
    stopped = "nothing more: interrupted" in verification.checked
    assert stopped == (value is interrupted)


def test_hard_claims_have_their_turn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not settled in its first short time is settled at the end."""
    monkeypatch.setattr(cascade, "FIRST_S", -1.0)
    assert verify_document(several()).complete


def test_bug_nodes_of_a_single_lane_were_dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages of four replicas on half a node each: over node orders, in a fiftieth of the time."""
    family = load_family(ROOT / "instances" / "aws_gpt2xl.yaml")
    prover = Prover(PlanSpace(family.instance))
    config = next(
        config
        for config in configs_of(family.instance, (1, 7))
        if (config.dp, config.pp, config.zero) == (4, 16, 0)
    )
    monkeypatch.setattr(cascade, "exhaust_lanes", None)
    claim = cascade.Claim(0, config, 710_671_452)  # 0.1 % below the best plan of the cluster
    assert present(cascade.searched(prover, claim, Deadline(None))).argument == "trial"


def test_bug_links_that_take_years_stood_for_a_lack_of_memory() -> None:
    """No plan being faster than any time shows that none fits only where times stay below that."""
    slow, instance = Link(bandwidth_bytes_per_s=1e-3, latency_s=0), random_instance(25)
    wide = next(config for config in configs(instance) if sum(config.nodes_used) > 1)
    prover = Prover(PlanSpace(with_groups(instance, inter_node=slow)))
    with pytest.raises(InstanceError, match="the slowest link needs"):
        cascade.quick_verdicts(prover, [cascade.Claim(0, wide, ANY_TIME_NS, nothing_fits=True)])
