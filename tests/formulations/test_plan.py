"""Plans as values: slots, ranks with the same tensors, what ZeRO leaves on each."""

import pytest

from formulations import plan
from tests.export_cases import WHOLE_EXPERTS, instance_of, plan_of
from tests.recorded import Cases, digest, recorded

INSTANCE = instance_of()  #: a node of four GPUs and two of two
PLAIN = plan_of(INSTANCE).config  #: two replicas of four stages, of one GPU each


def test_degrees() -> None:
    """Parts x cp tensor groups of tp GPUs; parts have equal shares of a micro-batch."""
    slot = plan.Degrees(tp=2, parts=3, cp=2)
    assert (slot.copies, slot.width, slot.sequences(6)) == (6, 12, 2)
    with pytest.raises(ValueError, match="4 sequences for 3 equal parts"):
        slot.sequences(4)


@recorded("plan")
def test_what_ranks_have_is_recorded() -> Cases:
    """Ranks with the same tensors, and what ZeRO leaves of 7 parameters and 6 of experts on each.

    Two replicas have each tensor twice: 4 states at most.
    """
    experts = WHOLE_EXPERTS.config
    configs = {
        "plain": PLAIN,
        "alone": PLAIN.but(dp=1),
        "experts": experts,
        "chunks": PLAIN.but(vpp=2),
    }
    configs["split"] = experts.but(ep=1, etp=None)
    for name, config in configs.items():
        grid = config.expert_lanes(0), config.expert_grid(0), config.expert_ranks(0)
        shape = config.slots, config.num_stages, config.ranks(0), config.widest_tp, config.cp
        kept = []
        for zero in range(4):
            of = config.but(zero=zero)
            kept.append([of.own(split, 7, 0, 6) for split in of.splits])
        flags = config.has_copies, config.has_expert_grid, config.per_stage
        stages = list(config.stages_of(1 % config.pp))
        used = [*config.groups_used, *(each.tp for each in config.degrees_used)]
        yield name, [*map(list, (grid, shape, flags)), kept, stages, used]
    three = (plan.Degrees(tp=1, parts=3), plan.Degrees(tp=2))
    for name, degrees in {"two": plan.uniform_degrees(INSTANCE, 2), "three": three}.items():
        slots = plan.slots_of_order(INSTANCE, degrees, [1, 0, 1])
        yield name, [[slot.node, *slot.gpus] for slot in slots]
        yield f"{name} GPUs", plan.num_gpus(INSTANCE, PLAIN.but(degrees=degrees))
    # 1 x 3 of the node of four, and all of the two nodes of two
    assert plan.num_gpus(INSTANCE, PLAIN.but(degrees=three)) == 3 + 4
    yield "whole", digest(plan_of(INSTANCE).replicas)
    assert PLAIN.own(True, 7, 0) == 4
    assert PLAIN.but(degrees=()).has_copies  # taken for granted
    keeping = PLAIN.but(zero=3, sync_each_batch=False)  # gradients whole, all else split by two
    assert [keeping.own(split, 7, 0) for split in keeping.splits] == [4, 7, 4]
    # of 8 dense parameters two replicas keep 4 each, of 6 of experts the one GPU all
    assert experts.own(True, 8, 0, 6) == 4 + 6


@pytest.mark.parametrize(("batch", "fits"), [(65_536, True), (131_072, False)])
def test_steps_that_are_too_long_to_simulate(batch: int, fits: bool) -> None:
    """32,768 micro-batches of one sequence for each of two replicas are the most."""
    config: plan.Configuration = PLAIN.but(micro_batch=1)
    assert plan.simulable(INSTANCE.with_batch(batch), config) == fits
