"""Bytes and collectives of a shape that no placement changes."""

from formulations.costs.collectives import ALL_REDUCE, HALF
from formulations.instance import Instance
from formulations.instance.workload import Workload, padded_vocabulary
from formulations.plan import Shape
from formulations.units import ceil_div


def num_holders(shape: Shape, split_from: int) -> int:
    """Replicas over which ZeRO from this stage on splits what the others hold whole."""
    return shape.dp if shape.zero >= split_from else 1


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


def message_bytes(instance: Instance, shape: Shape) -> int:
    """One tensor of one micro-batch that one GPU sends to the next stage; a message has some."""
    whole = shape.micro_batch * instance.workload.boundary_bytes
    return ceil_div(whole, shape.tp) if instance.search.splits_messages else whole


def touched_bytes(workload: Workload) -> int:
    """Memory traffic of the optimizer per parameter: reads gradient and state, writes back."""
    return workload.gradient_bytes + 2 * workload.optimizer_bytes + workload.parameter_bytes


def tied_bytes(instance: Instance, shape: Shape) -> int:
    """Gradient of the copy of the embedding on the last stage, per GPU; 0 if there is none."""
    head = instance.workload.layers[-1]
    if shape.pp == 1 or not head.tied_copy:
        return 0
    rows = padded_vocabulary(head.vocabulary_rows, shape.tp) // shape.tp
    return rows * head.vocabulary_columns * instance.workload.gradient_bytes
