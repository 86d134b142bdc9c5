"""Slices of a switch: who holds what, what is missing, in how many classes."""

from typing import get_args

from bench.switching import in_order
from formulations.switching.shards import Kind, first_gpus, layout_of, slice_classes
from tests.oracles.cases import drawn
from tests.recorded import Cases, digest, recorded
from tests.small_instances import layer, workload


@recorded("shards")
def test_layouts_and_slices_are_the_recorded_ones() -> Cases:
    """Of plans of every feature, from where each holds its parts to whole copies, and back."""
    for name, instance, plan, _ in drawn(0, 1):
        layout, num_gpus = layout_of(instance.cluster, plan), first_gpus(instance.cluster)[-1]
        whole = in_order((num_gpus, 1, 1), 0, layers=len(instance.workload.layers))
        moves = [
            slice_classes(instance.workload, *ends, [kind])
            for ends in ((layout, whole), (whole, layout))
            for kind in get_args(Kind)
        ]
        yield name, [num_gpus, digest(layout), digest(moves)]


def test_bug_units_of_experts() -> None:
    """From ep 2 to ep 1 experts were split in units of the wrong number of ranks.

    Before, GPU g has half g div 2 of the experts of g mod 2; after, quarter g of all, 40 elements
    of 4 bytes. GPUs 0 and 3 have half of that, 1 and 2 too, each of its own experts.
    """
    block = layer("block", 1, 160, 4).but(expert_parameters=160)
    model = workload([block], 1, 1, False)
    before, after = in_order((4, 1, 1), ep=2, layers=1), in_order((4, 1, 1), layers=1)
    got = dict.fromkeys(range(4), 0)
    for one in slice_classes(model, before, after, ["gradients"]):
        for gpu in one.needers:
            got[gpu] += sum(part.size_bytes for part in one.slices if part.what == "experts")
    assert got == dict.fromkeys(range(4), 4 * 20)
