"""Lanes of a slot, where node groups have degrees of their own.

A lane is a GPU of a tensor group with those that hold the same part of each layer elsewhere: on
other replicas, and in the other parts of the slot.
"""

import numpy as np
from numpy.typing import NDArray

from formulations.instance import Instance
from formulations.plan import Degrees, Shape


def lanes_like(shape: Shape, group: int) -> int:
    """The first node group whose tensor groups are as large: its lanes hold as much."""
    sizes = [degrees.tp for degrees in shape.degrees]
    return sizes.index(sizes[group])


def widest_group(shape: Shape) -> int:
    """Of the node groups used the first with the largest tensor groups."""
    used = [j for j, count in enumerate(shape.nodes_used) if count]
    return max(used, key=lambda j: shape.degrees[j].tp)


def message_lanes(instance: Instance, own: Degrees, widest: int) -> int:
    """How often a message between nodes is sent by, or for, the GPUs of a slot.

    Once by each of them, for its part. Where tensor groups do not split messages every GPU needs
    its own whole, so in plans with unlike ones as often as the widest asks for.
    """
    whole = not instance.search.splits_messages
    return own.copies * (widest if whole else own.tp)


def tied_lanes(shape: Shape, group: int) -> int:
    """GPUs of a slot of a group that send their share of the tied gradients to another node.

    All of them, as every rank of Megatron-LM reduces its own with that of the other end of its
    pipeline (`distributed/finalize_model_grads.py`): two parts send as much as two replicas. Both
    ends wait for the slower of their links: of unlike ends on links alike for that of more parts.
    """
    return shape.degrees[group].width


def layers_alike(shape: Shape, lane_bytes: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Masks [L] of layers, one if the groups used agree in the bytes of all, else per kind.

    lane_bytes: [L, J]. Within a mask the slowest of rings on several groups is so for every layer.
    """
    used = [j for j, count in enumerate(shape.nodes_used) if count]
    if len({shape.degrees[j].tp for j in used}) == 1:
        return (np.ones(len(lane_bytes), dtype=np.int64),)
    kinds, which = np.unique(lane_bytes[:, used], axis=0, return_inverse=True)
    return tuple((which.ravel() == i).astype(np.int64) for i in range(len(kinds)))
