"""Bytes and collectives of a shape that no placement changes."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from formulations.costs.collectives import ALL_REDUCE, HALF
from formulations.instance import Instance
from formulations.instance.workload import Workload, padded_vocabulary
from formulations.plan import Shape
from formulations.units import ceil_div

#: A number, or some.
N = TypeVar("N", int, NDArray[np.int64])


def num_holders(shape: Shape, split_from: int, group: int) -> int:
    """Parts of replicas over which ZeRO from this stage on splits what others hold whole."""
    own = shape.degrees[group]
    return shape.dp * own.parts * own.cp if shape.zero >= split_from else 1


def num_lanes(shape: Shape, group: int) -> int:
    """GPUs in a row that hold parts of the same experts."""
    return shape.degrees[group].tp if shape.etp is None else shape.etp


def num_copies(shape: Shape, group: int) -> int:
    """GPUs of a stage, one per lane, that hold the same experts."""
    own = shape.degrees[group]
    gpus = shape.dp * own.tp * own.parts * own.cp
    return max(1, gpus // (num_lanes(shape, group) * shape.ep))


def shards(shape: Shape, split_from: int, group: int, parameters: N, experts: N) -> N:
    """What a GPU holds of these, and of experts that GPUs share, if ZeRO splits from a stage on."""
    copies = num_copies(shape, group) if shape.zero >= split_from else 1
    return -(-parameters // num_holders(shape, split_from, group)) - (-experts // copies)


def num_slots(instance: Instance, shape: Shape, group: int) -> int:
    """Slots of one node of a group."""
    own = shape.degrees[group]
    return instance.cluster.groups[group].gpus_per_node // (own.tp * own.parts * own.cp)


def widest(shape: Shape) -> int:
    """The node group whose tensor groups are largest among those used, the first of them."""
    used = [j for j, count in enumerate(shape.nodes_used) if count]
    return max(used, key=lambda j: (shape.degrees[j].tp, -j))


def collective_factors(instance: Instance, shape: Shape) -> tuple[float, float]:
    """Once per step, of a ring pass: reducing gradients, and gathering parameters.

    Less what backward passes hide: no more than is assumed, and where there are several stages
    never the last chunk of a GPU.
    """
    hidden = instance.search.overlap.gradient_sync
    if shape.pp > 1:
        hidden = min(hidden, (shape.vpp - 1) / shape.vpp)
    if shape.zero == 0:
        return ALL_REDUCE * (1 - hidden), 0
    return (HALF * (1 - hidden) if shape.zero == 1 else 0), (HALF if shape.zero < 3 else 0)


def message_bytes(instance: Instance, shape: Shape, group: int) -> int:
    """One tensor of one micro-batch that one GPU sends to the next stage; a message has some."""
    own = shape.degrees[group]
    whole = own.sequences(shape.micro_batch) * instance.workload.boundary_bytes
    return ceil_div(whole, own.cp * (own.tp if instance.search.splits_messages else 1))


def message_lanes(instance: Instance, shape: Shape, group: int, widest: int | None = None) -> int:
    """How often it crosses a border of nodes, per slot: see `formulations.costs.sharding`.

    Whole messages as often as the largest tensor group has GPUs, of the plan if no other is given;
    parts once.
    """
    own = shape.degrees[group]
    split = instance.search.splits_messages
    return own.parts * own.cp * (own.tp if split else widest or shape.widest_tp)


def touched_bytes(workload: Workload) -> int:
    """Memory traffic of the optimizer per parameter: reads gradient and state, writes back."""
    return workload.gradient_bytes + 2 * workload.optimizer_bytes + workload.parameter_bytes


def tied_bytes(instance: Instance, shape: Shape, group: int) -> int:
    """Gradient of the copy of the embedding on the last stage, per GPU; 0 if there is none."""
    head, tp = instance.workload.layers[-1], shape.degrees[group].tp
    if shape.pp == 1 or not head.tied_copy:
        return 0
    rows = padded_vocabulary(head.vocabulary_rows, tp) // tp
    return rows * head.vocabulary_columns * instance.workload.gradient_bytes
