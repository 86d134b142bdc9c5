"""Interleaved 1F1B (Narayanan et al., SC 2021, section 2.2): v chunks of layers per device.

Megatron-LM's order: micro-batches go in groups of p, a group through chunk 0, then through chunk
1, and so on; backward the other way round. Device d warms up with 2 (p - 1 - d) + (v - 1) p
forwards, then one forward and one backward in turn. The number of micro-batches is a multiple of
p. Bubble of equal stages without transfers: (p - 1)(F + B) / v, F and B those of a device.
"""

import numpy as np

from formulations.schedules.operations import Counts, Kind, Missed, Operation, Order


def order(num_devices: int, device: int, micro_batches: int, chunks: int) -> Order:
    """Warm-up, pairs, cool-down."""
    p, total = num_devices, micro_batches * chunks
    warm = min(2 * (p - 1 - device) + (chunks - 1) * p, total)
    for i in range(warm):
        yield _nth(Kind.FORWARD, i, p, device, chunks)
    for i in range(total - warm):
        yield _nth(Kind.FORWARD, warm + i, p, device, chunks)
        yield _nth(Kind.BACKWARD, i, p, device, chunks)
    for i in range(total - warm, total):
        yield _nth(Kind.BACKWARD, i, p, device, chunks)


def _nth(kind: Kind, i: int, p: int, device: int, chunks: int) -> Operation:
    group, place = divmod(i, p * chunks)
    chunk = place // p
    if kind == Kind.BACKWARD:
        chunk = chunks - 1 - chunk
    return Operation(kind, chunk * p + device, group * p + place % p)


def missed(p: Counts, stage: Counts, m: Counts, chunks: Counts) -> tuple[Missed, ...]:
    """Forwards of the same chunk before B(s, 0), or backwards of it after F(s, m - 1).

    Of the device of virtual stage s, the chunk's own operations alone are counted. Before B(s, 0),
    which v - 1 - c groups of p backwards precede, are all forwards of the warm-up and as many more.
    """
    chunk, device = stage // p, stage % p
    warm = np.minimum(2 * (p - 1 - device) + (chunks - 1) * p, m * chunks)
    before = np.minimum(warm + (chunks - 1 - chunk) * p + 1, m * chunks)
    forward = _of_chunk(before, p, chunk, chunks) - 1
    done = np.maximum((m // p - 1) * p * chunks + (chunk + 1) * p - 1 - warm, 0)
    backward = m - 1 - _of_chunk(done, p, chunks - 1 - chunk, chunks)
    none = np.zeros_like(forward)
    return Missed(forward, none, none), Missed(none, backward, none)


def forwards_before_return(p: int, device: Counts, m: int, chunks: int) -> Counts:
    """Most forwards of one chunk of a device before the first backward of its last chunk."""
    warm = np.minimum(2 * (p - 1 - device) + (chunks - 1) * p, m * chunks)
    before = np.minimum(warm + 1, m * chunks)
    sizes = np.full_like(before, p), np.full_like(before, chunks)
    forwards: Counts = np.max(
        [_of_chunk(before, sizes[0], 0 * before + c, sizes[1]) for c in range(chunks)], axis=0
    )
    return forwards


def _of_chunk(number: Counts, p: Counts, place: Counts, chunks: Counts) -> Counts:
    """How many of the first `number` operations of one kind are of the chunk at this place."""
    groups, rest = number // (p * chunks), number % (p * chunks)
    number_of_chunk: Counts = groups * p + np.clip(rest - place * p, 0, p)
    return number_of_chunk
