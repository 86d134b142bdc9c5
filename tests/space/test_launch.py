"""What a plan asks of launch targets: each decision just inside and just outside of their rules."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.targets import TARGETS, Target
from formulations.instance.workload import Recompute
from formulations.plan import Degrees, Plan
from formulations.space.launch import (
    able,
    first_blocks,
    obstacles,
    runs,
    shard_choices,
    sync_choices,
    widened,
    zero_choices,
)
from tests.conftest import present
from tests.hand_made import pipelined_result
from tests.random_spaces import random_space, spread
from tests.recorded import Cases, recorded

RESULT = pipelined_result()  #: two replicas of two stages, ZeRO 1


def with_ties(tied: bool) -> Instance:
    return RESULT.instance.but(workload={"tied_embeddings": tied})


def plan_with(way: Recompute = "none", first_blocks: int | None = None, **config: Any) -> Plan:
    """The plan with other fields; first_blocks: recomputed on the first stage, of one replica."""
    plan = present(RESULT.plan)
    blocks = [layer.is_block for layer in RESULT.instance.workload.layers]
    replicas = []
    for r, replica in enumerate(plan.replicas):
        stages = []
        for s, stage in enumerate(replica.stages):
            count = 0 if way == "none" else sum(blocks[slice(*stage.layers)])
            count = first_blocks if first_blocks is not None and r == s == 0 else count
            stages.append(stage.but(recomputed={"way": way if count else "none", "blocks": count}))
        replicas.append(replica.but(stages=tuple(stages)))
    return plan.but(config=plan.config.model_copy(update=config), replicas=tuple(replicas))


def with_degrees(rows: Sequence[Sequence[Degrees]]) -> Plan:
    """The plan with degrees [replica][stage] of its own."""
    plan, (first, *_, last) = plan_with(), rows[0]
    replicas = tuple(
        replica.but(
            stages=tuple(
                stage.but(degrees=own) for stage, own in zip(replica.stages, row, strict=True)
            )
        )
        for replica, row in zip(plan.replicas, rows, strict=True)
    )
    config = plan.config.but(degrees=(first, last), nodes_used=(1, 1))
    return plan.but(config=config, replicas=replicas)


def plans() -> Iterator[tuple[str, Plan]]:
    yield "as it is", plan_with()
    for way in ("selective", "full"):
        yield way, plan_with(way)
        yield f"{way}, but not in one stage", plan_with(way, first_blocks=0)
    for fields in (
        {"schedule": "interleaved"},
        {"schedule": "zb-h1"},
        {"zero": 0},
        {"zero": 1, "pp": 1},
        {"zero": 2, "pp": 1},
        {"zero": 3, "pp": 1},
        {"zero": 3, "pp": 1, "sync_each_batch": False},
        {"ep": 2, "zero": 0},
        {"ep": 2, "degrees": (Degrees(tp=2),)},
        {"zero": 0, "degrees": (Degrees(tp=1, cp=2),)},
    ):
        yield str(fields), plan_with(**fields)
    first, *rest = plan_with().replicas
    uneven = first.but(micro_batches=first.micro_batches + 1)
    yield "uneven", plan_with().but(replicas=(uneven, *rest))
    narrow, wide, three = (Degrees(tp=1, parts=parts) for parts in (1, 2, 3))
    yield "stages of unlike degrees", with_degrees([[wide, narrow]] * 2)
    yield "of which 2 and 3 divide no other", with_degrees([[wide, three], [wide, three]])
    yield "replicas of unlike stages", with_degrees([[wide, narrow], [narrow, narrow]])


@recorded("launch")
def test_who_can_launch_a_plan_is_recorded() -> Cases:
    for name, plan in plans():
        for tied in (False, True):
            instance = with_ties(tied)
            launchers = able(instance, plan)
            words = {
                target: list(map(list, barring))
                for target in TARGETS
                if (barring := obstacles(instance, plan, target))
            }
            assert {*launchers, *words, "any"} == set(TARGETS)
            assert not {*launchers} & {*words}
            yield f"{name}{', tied' * tied}", [first_blocks(instance, plan), launchers, words]


@pytest.mark.parametrize("target", TARGETS)
@recorded("launch")
def test_zero_stages_and_wider_spaces_are_the_recorded_ones(target: Target) -> Cases:
    """Of drawn instances: who runs all of their plans, and what other targets would add."""
    for seed in range(0, 12, 3):
        instance = random_space(seed, target)
        wide = spread(instance.but(search={"target": "any"}), 20)
        stages = [zero_choices(instance, config) for config in wide]
        shards = [
            list(shard_choices(instance.but(search={"optimizer_instances": (1, 2, 3)}), config))
            for config in wide
        ]
        keeping = instance.but(search={"sync_each_batch": (False, True)})
        syncs = [list(sync_choices(keeping, config.but(zero=3))) for config in wide]
        runners = [each for each in TARGETS if runs(each, instance.search)]
        wider = {each: widened(instance, each) for each in TARGETS}
        assert target in runners
        yield f"{target} {seed}", [stages, shards, syncs, runners, wider]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"ep": 2, "zero": 0}, "expert_parallel"),
        ({"ep": 2, "degrees": (Degrees(tp=2),)}, "expert_tensor_parallel"),
        ({"ep": 1, "zero": 0, "degrees": (Degrees(tp=1, cp=2),)}, "context_parallel"),
    ],
)
def test_bug_torchtitan_was_given_experts_that_it_cannot_place(
    config: dict[str, Any], field: str
) -> None:
    """It keeps them whole and takes FSDP's ranks for them, to which those of a sequence belong."""
    instance = with_ties(False)
    plan = plan_with(**config)
    (only,) = obstacles(instance, plan, "torchtitan")
    assert only.found.startswith(f"{field}: ")
    narrow = instance.but(search={"target": "torchtitan"})
    assert plan.config.zero not in zero_choices(narrow, plan.config)
    assert plan.config.zero in zero_choices(instance, plan.config)
