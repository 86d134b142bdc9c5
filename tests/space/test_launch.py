"""What a plan asks of launch targets: each decision just inside and just outside of their rules."""

from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.workload import Recompute
from formulations.plan import Degrees, Plan
from formulations.space.launch import able, first_blocks, obstacles, zero_choices
from tests.hand_made import pipelined_result

RESULT = pipelined_result()  #: two replicas of two stages, ZeRO 1
ALL = ["megatron", "flagscale", "torchtitan"]


def with_ties(tied: bool) -> Instance:
    return RESULT.instance.but(workload={"tied_embeddings": tied})


def plan_with(way: Recompute = "none", first_blocks: int | None = None, **config: Any) -> Plan:
    """The plan with other fields; first_blocks: recomputed on the first stage, of one replica."""
    plan = RESULT.plan
    assert plan is not None
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


@pytest.mark.parametrize(
    ("plan", "targets"),
    [
        (plan_with(), ALL),
        (plan_with("full"), ALL),
        (plan_with("full", first_blocks=0), ["flagscale"]),
        (plan_with("selective"), ["megatron", "flagscale"]),
        (plan_with("selective", first_blocks=0), []),
        (plan_with(schedule="interleaved"), ["megatron", "torchtitan"]),
        (plan_with(schedule="zb-h1"), ["torchtitan"]),
        (plan_with(zero=3, pp=1), ["torchtitan"]),
        (plan_with(zero=1, pp=1), ["megatron", "flagscale"]),
        (plan_with(zero=0), ALL),
    ],
)
def test_who_can_launch_a_plan(plan: Plan, targets: list[str]) -> None:
    assert able(with_ties(False), plan) == targets


def test_all_stages_recompute_their_first_block() -> None:
    assert first_blocks(RESULT.instance, plan_with("full")) == 1


def test_tied_embeddings_on_several_stages_are_not_for_torchtitan() -> None:
    """It shares a matrix inside one stage alone."""
    assert able(with_ties(True), plan_with()) == ["megatron", "flagscale"]
    (only,) = obstacles(with_ties(True), plan_with(), "torchtitan")
    assert (only.field, only.value) == ("pipeline_parallel", 2)


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
    assert only.field == field
    narrow = instance.but(search={"target": "torchtitan"})
    assert plan.config.zero not in zero_choices(narrow, plan.config)
    assert plan.config.zero in zero_choices(instance, plan.config)


def test_unequal_shares_are_for_any_target_alone() -> None:
    plan = plan_with()
    first, *rest = plan.replicas
    more = first.but(micro_batches=first.micro_batches + 1)
    uneven = plan.but(replicas=(more, *rest))
    assert able(RESULT.instance, uneven) == []
    (only,) = obstacles(RESULT.instance, uneven, "flagscale")
    assert only.found == (
        "micro_batches: uneven is not for FlagScale, which runs equally many micro-batches in all"
        " replicas"
    )
    assert only.change == "search.target: flagscale, and solve again"
    assert obstacles(RESULT.instance, uneven, "any") == []


def test_degrees_by_stage_are_flagscales_alone() -> None:
    """Its process meshes; not where the replicas of one stage differ."""
    plan, wide, narrow = plan_with(), Degrees(tp=1, parts=2), Degrees(tp=1)
    config = plan.config.but(degrees=(wide, narrow), nodes_used=(1, 1))

    def with_degrees(second: Degrees, last: Degrees = narrow) -> Plan:
        rows = zip(plan.replicas, ([wide, last], [second, last]), strict=True)
        replicas = tuple(
            replica.but(
                stages=tuple(
                    stage.but(degrees=one) for stage, one in zip(replica.stages, row, strict=True)
                )
            )
            for replica, row in rows
        )
        return plan.but(config=config, replicas=replicas)

    assert able(with_ties(False), with_degrees(wide)) == ["flagscale"]
    assert able(with_ties(False), with_degrees(narrow)) == []
    assert able(with_ties(False), with_degrees(wide, Degrees(tp=1, parts=3))) == []  # 2 and 3
