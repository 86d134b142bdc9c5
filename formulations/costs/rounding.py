"""How much of a step time is rounding: costs are whole nanoseconds, each rounded up."""

from formulations.plan import Shape


def rounding_error_ns(shape: Shape, num_layers: int, micro_batches: int) -> int:
    """Upper bound of (integer step time - step time without rounding) for every plan of a shape.

    `micro_batches`: the largest number m of one replica. Counts times only: whole parameters
    per rank and whole bytes per message are part of the model, not rounding.

    Proof. The integer step time is the integer length of one path; the same path without
    rounding is no longer than the step time without rounding. So the difference is at most the
    number of figures on the path, each rounded up by less than 1 ns:

    * At most 2 (m + p - 1) forwards and backwards, since an increasing potential exists: for
      1F1B F(k, i) -> 2i + k + 1 and B(k, i) -> 2i + 2p - k; for GPipe F(k, i) -> i + k + 1 and
      B(k, i) -> i + m + 2p - 1 - k. It grows by at least 1 along every edge of
      `formulations.schedules` and stays within 1..2 (m + p - 1). Each is a sum over at most
      n = L - p + 1 layers, as the other stages hold one layer at least, and is followed or
      prolonged by at most one transfer: n + 1 figures.
    * One gradient sync: two rings for each of n layers and two start-ups: 2 n + 2.
    * One all-reduce of tied embeddings: 1. One optimizer: n.
    * With ZeRO 1 one gather: 2 n + 2.
    """
    layers = num_layers - shape.pp + 1
    rings = 2 * layers + 2
    operations = 2 * (micro_batches + shape.pp - 1)
    return operations * (layers + 1) + rings * (1 + shape.zero) + 1 + layers
