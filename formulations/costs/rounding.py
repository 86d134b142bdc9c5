"""How much of a step time is rounding: costs are whole nanoseconds, each rounded up."""

from formulations.plan import GRADIENTS_SPLIT, Shape
from formulations.schedules import SCHEDULES, schedule_graph


def rounding_error_ns(shape: Shape, num_layers: int, micro_batches: int) -> int:
    """Upper bound of (integer step time - step time without rounding) for every plan of a shape.

    `micro_batches`: the largest number m of one replica. Counts times only: whole parameters
    per rank and whole bytes per message are part of the model, not rounding.

    Proof. The integer step time is the integer length of one path; the same path without
    rounding is no longer than the step time without rounding. So the difference is at most the
    number of figures on the path, each rounded up by less than 1 ns:

    * One operation at most of every level of the schedule's graph, 2 (m + p - 1) in 1F1B and
      GPipe. Each is a sum over at most n = L - S + 1 layers, as the other S - 1 virtual stages
      hold one layer at least, and is followed or prolonged by at most one transfer: n + 1
      figures. Where the backward pass is split, what it has without weight gradients is the
      whole, rounded up, less these, rounded down: two figures per layer.
    * One gradient sync: two rings for each of the l = L - S + v layers that a device may have,
      and two start-ups: 2 l + 2.
    * One all-reduce of tied embeddings: 1. One optimizer: l.
    * With ZeRO 1 or 2 one gather: 2 l + 2. With ZeRO 2 or 3 in every operation at most two
      collectives of every layer, of two rings and two start-ups each, and what of it is hidden;
      where GPUs share experts twice as many collectives.
    """
    layers = num_layers - shape.num_stages
    held = layers + shape.vpp
    per_layer = 2 if SCHEDULES[shape.schedule].splits_backward else 1
    per_layer += (18 if shape.has_expert_grid else 10) * (shape.zero >= GRADIENTS_SPLIT)
    levels = schedule_graph(shape.schedule, shape.pp, micro_batches, shape.vpp).levels
    rings = 2 * held + 2
    return len(levels) * (per_layer * (layers + 1) + 1) + rings * (1 + (shape.zero > 0)) + 1 + held
