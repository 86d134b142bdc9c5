"""Plans as values: slots, ranks with the same tensors, what ZeRO leaves on each."""

import pytest

from formulations.plan import (
    Configuration,
    Degrees,
    Group,
    num_gpus,
    simulable,
    slots_of_order,
    uniform_degrees,
)
from tests.export_cases import WHOLE_EXPERTS, instance_of, plan_of

INSTANCE = instance_of()  #: a node of four GPUs and two of two
PLAIN = plan_of(INSTANCE).config  #: two replicas of four stages, of one GPU each


def test_slots_of_nodes_in_order() -> None:
    """As many of a width as a node has; equal nodes by number; GPUs that are left stay idle."""
    two = uniform_degrees(INSTANCE, 2)
    slots = [Group(node=1, gpus=(0, 1)), Group(node=0, gpus=(0, 1)), Group(node=0, gpus=(2, 3))]
    assert slots_of_order(INSTANCE, two, [1, 0]) == slots
    three = (Degrees(tp=1, parts=3), Degrees(tp=2))
    assert slots_of_order(INSTANCE, three, [0]) == [Group(node=0, gpus=(0, 1, 2))]
    # 1 x 3 of the four, and all of the two nodes of two
    assert num_gpus(INSTANCE, PLAIN.but(degrees=three)) == 3 + 4
    assert num_gpus(INSTANCE, PLAIN.but(degrees=())) == 8


def test_degrees() -> None:
    """Parts x cp tensor groups of tp GPUs; parts have equal shares of a micro-batch."""
    slot = Degrees(tp=2, parts=3, cp=2)
    assert (slot.copies, slot.width, slot.sequences(6)) == (6, 12, 2)
    with pytest.raises(ValueError, match="4 sequences for 3 equal parts"):
        slot.sequences(4)


def test_ranks_and_what_zero_splits() -> None:
    """Two replicas have each tensor twice: 7 parameters are 4 states at most on each."""
    assert (PLAIN.slots, PLAIN.num_stages, PLAIN.ranks(0), PLAIN.has_copies) == (8, 4, 2, True)
    for zero, counts in ((0, (7, 7, 7)), (1, (4, 7, 7)), (2, (4, 4, 7)), (3, (4, 4, 4))):
        config = PLAIN.but(zero=zero)
        kept = config.own_states(7, 0), config.own_gradients(7, 0), config.own_parameters(7, 0)
        assert kept == counts
    assert not PLAIN.but(dp=1).has_copies
    assert PLAIN.but(degrees=()).has_copies  # taken for granted


def test_experts_lie_on_a_grid_of_their_own() -> None:
    """Tp 2, two replicas: four GPUs of a stage share the experts, each of which is whole."""
    config = WHOLE_EXPERTS.config
    assert (config.dp, config.ep, config.etp, config.widest_tp) == (2, 4, 1, 2)
    assert (config.expert_lanes(0), config.expert_grid(0), config.expert_ranks(0)) == (1, 4, 1)
    split = config.but(ep=1, etp=None)
    assert (split.expert_lanes(0), split.expert_grid(0), split.expert_ranks(0)) == (2, 2, 2)
    # of 8 dense parameters two replicas keep 4 each, of 6 of experts the one GPU all
    assert config.but(zero=1).own_states(8, 0, 6) == 4 + 6


def test_chunks_go_round_the_devices() -> None:
    """Virtual stage s lies on device s mod pp."""
    assert list(PLAIN.but(vpp=2).stages_of(1)) == [1, 5]


@pytest.mark.parametrize(("batch", "fits"), [(65_536, True), (131_072, False)])
def test_steps_that_are_too_long_to_simulate(batch: int, fits: bool) -> None:
    """32,768 micro-batches of one sequence for each of two replicas are the most."""
    config: Configuration = PLAIN.but(micro_batch=1)
    assert simulable(INSTANCE.with_batch(batch), config) == fits
