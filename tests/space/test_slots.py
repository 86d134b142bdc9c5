"""How the GPUs of a node may share a stage, and which orders of nodes a target runs."""

from typing import Any

import pytest

from formulations.instance import Instance
from formulations.plan import Configuration, Degrees
from formulations.space.slots import (
    alike_degrees,
    apart,
    limits_orders,
    mesh_fault,
    runs_degrees,
    runs_order,
    slot_degrees,
    stage_places,
)
from tests.export_cases import UNTIED, instance_of, plan_of

#: A node of four GPUs and two of two; twelve heads, 1,024 tokens.
SEARCH = "target: any, tensor_parallel: [1, 2, 4], context_parallel: [1, 2], context_method: ring"


def sizes(slots: list[Degrees]) -> list[tuple[int, int, int]]:
    """Tensor groups, parts, and GPUs of a sequence."""
    return [(slot.tp, slot.parts, slot.cp) for slot in slots]


def test_slots_divide_nodes_and_heads() -> None:
    """Parts of equal size; undivided slots fill the nodes that are used."""
    instance = instance_of(search=SEARCH)
    assert sizes(slot_degrees(instance, 2, 1)) == [(1, 1, 1), (1, 2, 1), (2, 1, 1)]
    assert sizes(slot_degrees(instance, 3, 1)) == [(1, 1, 1), (1, 3, 1)]  # 2 divides no 3 GPUs
    assert sizes(alike_degrees(instance, [4, 2], 1)) == [(1, 1, 1), (2, 1, 1)]
    assert sizes(alike_degrees(instance, [4], 1)) == [(1, 1, 1), (2, 1, 1), (4, 1, 1)]


def test_slots_share_sequences_in_two_pieces_each() -> None:
    """1,024 tokens are 2 cp tp pieces; an exchange needs heads of its own for every GPU."""
    instance = instance_of(search=SEARCH)
    assert sizes(alike_degrees(instance, [4], 2)) == [(1, 1, 2), (2, 1, 2)]
    odd = instance.but(workload={"sequence_length": 1020})  # 4 divides it, 8 does not
    assert sizes(alike_degrees(odd, [4], 2)) == [(1, 1, 2)]
    heads = instance.but(workload={"kv_heads": 2}, search={"context_method": "all_to_all"})
    assert sizes(alike_degrees(heads, [4], 2)) == [(1, 1, 2)]


def unlike(
    target: str, *degrees: Degrees, workload: str = UNTIED
) -> tuple[Instance, Configuration]:
    """One replica of two stages on two nodes of unlike degrees."""
    instance = instance_of(workload, f"target: {target}, degrees: per_group")
    fields: dict[str, Any] = {"dp": 1, "pp": 2, "nodes_used": (1, 1), "zero": 0}
    return instance, plan_of(instance).config.but(degrees=degrees, **fields)


WIDE, NARROW = Degrees(tp=2, parts=2), Degrees(tp=1, parts=2)


def test_targets_of_like_ranks_take_any_order() -> None:
    """FlagScale's meshes alone limit orders, where degrees differ."""
    assert not limits_orders(*unlike("any", WIDE, NARROW))
    assert limits_orders(*unlike("flagscale", WIDE, NARROW))
    assert not limits_orders(*unlike("flagscale", WIDE, WIDE))
    assert runs_order(*unlike("any", WIDE, NARROW), [0, 1])


def test_unlike_ends_go_together_or_not_at_all() -> None:
    for order in ([0, 1], [1, 0]):
        assert runs_order(*unlike("flagscale", WIDE, NARROW), order)
        tied = unlike("flagscale", WIDE, NARROW, workload="catalogue: gpt2")
        assert not runs_order(*tied, order)
    assert runs_degrees(*unlike("flagscale", WIDE, NARROW), 0)
    instance, config = unlike("flagscale", WIDE, NARROW)
    assert not runs_degrees(instance, config.but(dp=2), 0)  # of one slot each
    assert not runs_degrees(*unlike("flagscale", WIDE, NARROW, workload="catalogue: gpt2"), 0)


def test_slots_that_cannot_be_owned_in_this_order() -> None:
    """The first slot and the last, by node groups whose stages do not go together."""
    instance, config = unlike("flagscale", WIDE, NARROW, workload="catalogue: gpt2")
    assert list(apart(instance, config)) == [((0, 0), (1, 1)), ((0, 1), (1, 0))]
    assert list(apart(*unlike("any", WIDE, NARROW))) == []


@pytest.mark.parametrize(("micro_batch", "parts"), [(1, {1}), (2, {1, 2}), (4, {1, 2, 4})])
def test_places_divide_micro_batches(micro_batch: int, parts: set[int]) -> None:
    instance = instance_of(search="target: any, tensor_parallel: [1]")
    fields: dict[str, Any] = {"degrees": (), "micro_batch": micro_batch, "nodes_used": (1, 0)}
    config = plan_of(instance).config.but(**fields)
    places = stage_places(instance, config)
    assert {j for j, _ in places} == {0}
    assert {degrees.parts for _, degrees in places} == parts


@pytest.mark.parametrize(
    ("first", "degrees", "split", "zero", "last", "words"),
    [
        (Degrees(tp=2), Degrees(tp=1), False, 0, False, "need sequence_parallel: true"),
        (Degrees(tp=2), Degrees(tp=2), False, 0, False, None),
        (Degrees(tp=2), Degrees(tp=1), True, 0, False, None),
        (Degrees(tp=2), Degrees(tp=1), True, 0, True, "tied embeddings lie on tensor groups of on"),
        (Degrees(tp=1, parts=4), Degrees(tp=1, parts=2), True, 1, True, None),
        (Degrees(tp=1, parts=2), Degrees(tp=1, parts=4), True, 1, True, None),
        (Degrees(tp=1, parts=3), Degrees(tp=1, parts=2), True, 1, True, "divide the other's"),
        (Degrees(tp=1, parts=3), Degrees(tp=1, parts=2), True, 1, False, None),
        (Degrees(tp=1, parts=3), Degrees(tp=1, parts=2), True, 0, True, None),
    ],
)
def test_stages_of_one_pipeline_of_flagscale(
    first: Degrees, degrees: Degrees, split: bool, zero: int, last: bool, words: str | None
) -> None:
    """Of a model with tied embeddings; without them both ends may be unlike."""
    fields = {"sequence_parallel": split, "split_tokens": 1024}
    fault = mesh_fault(instance_of().but(search=fields), zero, first, degrees, last)
    assert (fault is None) == (words is None)
    assert (words or "") in (fault or "")
    untied = instance_of(UNTIED).but(search=fields)
    if first.tp != degrees.tp and split:
        assert mesh_fault(untied, zero, first, degrees, last) is None
