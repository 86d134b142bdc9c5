"""Files of mixed lengths, right and forged."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.lengths import Rows
from formulations.lengths.problem import Moves
from formulations.lengths.strategy_time import NEVER
from formulations.lengths.tour import Group, Tour, best_single
from solver.evaluate.evaluation import row_plans
from solver.files import sealed
from solver.lengths.candidates import candidates
from solver.lengths.choose import build_lengths, choose
from solver.lengths_document import LengthsDocument
from solver.switching.quickest import switch_document
from solver.verify import Effort, verify_lengths, verify_switch
from solver.verify.lengths_file import least_ascending_ns
from tests.conftest import present
from tests.mixed_lengths import MIXED, ascending_tours, least_ns, random_mixed, small
from tests.recorded import as_recorded
from tests.seeds import each_of, one_each
from tests.small_instances import expert_instance, random_instance
from tests.stage_degrees import unlike_instance
from tests.switch_cases import example, plan_files, switches, zoned_instance
from tests.verify.forgeries import Changes, judged, resealed

#: What is said of a problem that was not made of an instance.
OF_NO_INSTANCE = "what strategies and switches take: the file holds no instance"


@pytest.mark.parametrize("rows", ["packed", "padded"])
@each_of(range(40), 14)
def test_what_was_chosen_is_proved(seed: int, rows: Rows) -> None:
    """All figures and the bound, in ascending order as in any; the least time is that of all steps.

    But where the problem is from, and what CP-SAT says of any order.
    """
    mixed = random_mixed(seed, rows=rows)
    least = least_ascending_ns(mixed)
    assert (least if least < NEVER else None) == least_ns(mixed, ascending_tours(mixed))
    for order in ("ascending", "free"):
        found = verify_lengths(build_lengths(choose(mixed, order), "toy"))
        left = [text for text in found.reservations if not text.endswith("CP-SAT's word")]
        assert not found.problems
        assert left == [OF_NO_INSTANCE]


def test_a_slower_step_is_no_optimum() -> None:
    """A right step with a bound of its own time is refused; without time a file is at its word."""
    mixed = random_mixed(5)
    best, single = choose(mixed, "ascending"), present(best_single(mixed))
    assert single.step_ns > best.step_ns
    tour = Tour(single.strategy, (Group(single.strategy, tuple(range(len(mixed.atoms)))),))
    claimed = replace(best, tour=tour, step_ns=single.step_ns, bound_ns=single.step_ns)
    problems = verify_lengths(build_lengths(claimed, "toy")).problems
    assert any(problem.startswith("lower_bound_s") for problem in problems)
    at_word = verify_lengths(written(*PADDED), Effort(time_limit_s=0.0))
    assert (at_word.problems, len(at_word.reservations)) == ((), 1)


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
PADDED = (("count: 2}]", "count: 2}]\n  rows: padded"), *MIXED.items())
SHARDED = (("search: {zero: 1}", "search: {target: any, zero: [3]}"),)


def test_strategies_are_recounted() -> None:
    """Of every plan the rows, room, reduction and optimizer; switches of the step have plans."""
    verification = verify_lengths(written(*SHARDED))
    assert verification.complete, (verification.problems, verification.reservations)
    assert written(*SWITCHING).switches


#: Fields that follow from the problem.
STEP = (
    "order status termination requested_gap anchor step_time_s lower_bound_s gap single "
    "groups switches workload instance.lengths.rows"
)
SWITCHES = "switch_plans.time_s switch_plans.cluster.groups.nodes switch_plans.moves"
PROBLEM = "problem above plans.replicas.micro_batches plans.instance.cluster.groups.gpu.name"


def test_what_is_said_of_forged_steps() -> None:
    """Of groups, switches and figures; and of a forged problem with the step that is its best."""
    switching, padded = written(*SWITCHING), written(*PADDED)
    verdicts = judged("switching", switching, verify_lengths, STEP, number=1)
    verdicts |= judged("switching", switching, verify_lengths, SWITCHES, number=1, seal=_honest)
    verdicts |= judged("padded", padded, verify_lengths, PROBLEM, number=1, seal=_honest)
    as_recorded("verify_lengths_file", verdicts)


def _honest(document: LengthsDocument, changes: Changes) -> LengthsDocument:
    forged = resealed(document, changes)
    chosen = choose(forged.problem, "ascending")
    step = build_lengths(chosen, forged.workload, forged.instance, (), forged.above)
    plans = {name: tuple(map(sealed, getattr(forged, name))) for name in ("plans", "switch_plans")}
    return sealed(step.model_copy(update=plans))


@pytest.mark.parametrize("seed", one_each((4, 0), 2))
@pytest.mark.parametrize(
    ("make", "moves"),
    [
        (random_instance, "both"),
        (expert_instance, "gradients"),
        (unlike_instance, "both"),
        (zoned_instance, "parameters"),
    ],
)
def test_switches_are_replayed(make: Callable[[int], Instance], moves: Moves, seed: int) -> None:
    """ZeRO of all stages, experts, context, mixed GPUs and tensor degrees; never above the rule."""
    instance = make(seed)
    search = instance.search.but(zero=(0, 1, 3))
    for document in switches(instance.but(search=search), moves, most=2):
        checked = verify_switch(document)
        assert checked.complete, checked.problems
        assert document.time_s <= document.published_s


def _half_slice(fields: dict[str, Any]) -> None:
    """Says the same slice in units half as large."""
    split = fields["classes"][0]["slices"][0]["split"]
    split[:] = [2 * split[0], split[0] + split[1], 2 * split[2]]


FIELDS = (
    "moves time_s lower_bound_s gap published_s devices bound_by classes sendings before.config.ep "
    "after.config.ep before.replicas after.replicas cluster.groups.name cluster.groups.nodes "
    "cluster.groups.inter_node.bandwidth"
)


def test_what_is_said_of_forged_switches() -> None:
    """A false source, volume, time or bound is named, though the digest fits."""
    verdicts = judged("example", example(), verify_switch, FIELDS, number=1)
    as_recorded("verify_switch_file", verdicts)
    assert verify_switch(resealed(example(), _half_slice)).problems


def test_bug_experts_that_nobody_holds_are_refused() -> None:
    """More ranks to share the experts than there are: some would be in no GPU, and never arrive."""
    own = [one for one in plan_files(expert_instance(4)) if one.config and one.config.ep > 1]
    before, after = (sealed(one.but(config={"ep": 64})) for one in own[:2])
    checked = verify_switch(switch_document(before, after, "parameters"))
    fields = [one.split(":")[0] for one in checked.problems]
    assert fields == ["before.config.ep", "after.config.ep"]
