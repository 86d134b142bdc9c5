"""Switches are replayed, and what was changed is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.lengths.problem import Moves
from solver.files import sealed
from solver.switching.quickest import switch_document
from solver.verify import verify_switch
from tests.recorded import as_recorded
from tests.resealed import resealed
from tests.seeds import one_each
from tests.small_instances import expert_instance, random_instance
from tests.stage_degrees import unlike_instance
from tests.switch_cases import example, plan_files, switches, zoned_instance
from tests.verify.forgeries import judged


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
    verdicts = judged("example", example(), verify_switch, FIELDS, number=2)
    as_recorded("verify_switch_file", verdicts)
    assert verify_switch(resealed(example(), _half_slice)).problems


def test_bug_experts_that_nobody_holds_are_refused() -> None:
    """More ranks to share the experts than there are: some would be in no GPU, and never arrive."""
    own = [one for one in plan_files(expert_instance(4)) if one.config and one.config.ep > 1]
    before, after = (sealed(one.but(config={"ep": 64})) for one in own[:2])
    checked = verify_switch(switch_document(before, after, "parameters"))
    fields = [one.split(":")[0] for one in checked.problems]
    assert fields == ["before.config.ep", "after.config.ep"]
