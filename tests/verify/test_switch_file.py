"""Switches are replayed, and what was changed is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.lengths.problem import Moves
from solver.switching.quickest import switch_document
from solver.verify import verify_switch
from tests.expert_instances import expert_instance
from tests.resealed import Changes, resealed
from tests.seeds import one_each
from tests.small_instances import random_instance
from tests.switch_cases import example, plan_files, switches, zoned_instance
from tests.unlike_degrees import unlike_instance

Fields = dict[str, Any]


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
    for document in switches(instance.but(search=search), moves):
        checked = verify_switch(document)
        assert checked.complete, checked.problems
        assert document.time_s <= document.published_s


def _other_source(fields: Fields) -> None:
    used = {one["gpu"] for one in fields["devices"]}
    for own in fields["classes"]:
        sources = {one["source"] for one in own["sendings"]}
        receivers = {gpu for one in own["sendings"] for gpu in one["receivers"]}
        for gpu in sorted(used - sources - receivers):
            own["sendings"][0].update(source=gpu)
            return


def _one_slice_less(fields: Fields) -> None:
    max(fields["classes"], key=lambda own: len(own["slices"]))["slices"].pop()


def _one_receiver_less(fields: Fields) -> None:
    for own in fields["classes"]:
        gpus = {gpu for one in own["sendings"] for gpu in one["receivers"]}
        if len(gpus) > 1 and all(one["via"] is None for one in own["sendings"]):
            for one in own["sendings"]:
                one["receivers"] = [gpu for gpu in one["receivers"] if gpu != min(gpus)]
            own["sendings"] = [one for one in own["sendings"] if one["receivers"]]
            return
    raise AssertionError


def _half_slice(split: list[int]) -> list[int]:
    first, end, units = split
    return [2 * first, first + end, 2 * units]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_other_source, "a GPU that holds the class"),
        ({"classes.0.sendings.0.begin": lambda ns: ns + 2}, "every byte of the class once"),
        (_one_slice_less, "classes: slices"),
        ({"classes": lambda own: own[:-1]}, "classes: slices"),
        ({"classes": lambda own: [*own, own[0]]}, "classes: slices"),
        ({"time_s": lambda time_s: 0.9 * time_s}, "time_s"),
        ({"published_s": lambda time_s: 1.1 * time_s}, "published_s"),
        ({"lower_bound_s": lambda time_s: 1.1 * time_s}, "lower_bound_s"),
        ({"bound_by.0.at": "fast-0:7"}, "bound_by"),
        ({"classes.0.slices.0.size_bytes": lambda size: size - 2}, "classes: slices"),
        ({"classes.0.sendings.0.receivers.0": "fast-7:0"}, "GPUs of the cluster"),
        ({"cluster.groups": lambda groups: [*groups, groups[0]]}, "names of nodes"),
        (_one_receiver_less, "all GPUs that lack it, no others"),
        ({"classes.0.slices.0.split": _half_slice}, "classes: slices"),
        ({"devices.0.sent_inside_bytes": lambda size: size + 1}, "devices"),
        (lambda fields: fields.update(after=fields["before"]), "classes: slices"),
        ({"after.replicas.0.stages.-1.layers.1": lambda end: end - 1}, "layers"),
    ],
)
def test_forged_switch_is_refused(change: Changes, named: str) -> None:
    """A false source, volume, time or bound is named, though the digest fits."""
    checked = verify_switch(resealed(example(), change))
    assert any(named in problem for problem in checked.problems), checked


def test_bug_experts_that_nobody_holds_are_refused() -> None:
    """More ranks to share the experts than there are: some would be in no GPU, and never arrive."""
    own = [one for one in plan_files(expert_instance(4)) if one.config and one.config.ep > 1]
    before, after = (one.but(config=one.config and one.config.but(ep=64)) for one in own[:2])
    checked = verify_switch(switch_document(before, after, "parameters"))
    fields = [one.split(":")[0] for one in checked.problems]
    assert fields == ["before.config.ep", "after.config.ep"]
