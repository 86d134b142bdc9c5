"""Interleaved 1F1B (Narayanan et al., SC 2021, section 2.2): v chunks of layers per device.

Megatron-LM's order: micro-batches go in groups of N, a group through chunk 0, then through chunk
1, and so on; backward the other way round. Device d warms up with 2 (p - 1 - d) + (v - 1) N
forwards, then one forward and one backward in turn. N is p unless
`--microbatch-group-size-per-virtual-pipeline-stage` says more: p to m, of which the last group, if
it has fewer, still has p (Megatron-Core 0.20, `pipeline_parallel/schedules.py`). Bubble of equal
stages without transfers: (p - 1)(F + B) / v, F and B those of a device.
"""

from collections.abc import Iterable

import numpy as np

from formulations.schedules.operations import Counts, Kind, Missed, Operation, Order


def sizes_of_groups(
    num_devices: int, micro_batches: int, sizes: Iterable[int | None]
) -> list[int | None]:
    """Those of the sizes of groups that so many micro-batches can be taken in; None is p."""
    possible = list[int | None]()
    for size in sizes:
        group = size or num_devices
        last = micro_batches % group or group
        if num_devices <= last and group <= micro_batches:
            possible.append(None if group == num_devices else group)
    return list(dict.fromkeys(possible))


def order(
    num_devices: int, device: int, micro_batches: int, chunks: int, group: int | None = None
) -> Order:
    """Warm-up, pairs, cool-down."""
    p, total, size = num_devices, micro_batches * chunks, group or num_devices
    warm = min(2 * (p - 1 - device) + (chunks - 1) * size, total)
    table = [
        (chunk, i)
        for first in range(0, micro_batches, size)
        for chunk in range(chunks)
        for i in range(first, min(first + size, micro_batches))
    ]
    forward = [Operation(Kind.FORWARD, chunk * p + device, i) for chunk, i in table]
    backward = [
        Operation(Kind.BACKWARD, (chunks - 1 - chunk) * p + device, i) for chunk, i in table
    ]
    yield from forward[:warm]
    for pair in zip(forward[warm:], backward, strict=False):
        yield from pair
    yield from backward[total - warm :]


def missed(
    p: Counts, stage: Counts, m: Counts, chunks: Counts, group: Counts | None = None
) -> tuple[Missed, ...]:
    """Forwards of the same chunk before B(s, 0), or backwards of it after F(s, m - 1).

    Of the device of virtual stage s, the chunk's own operations alone are counted. Before B(s, 0),
    which v - 1 - c groups of backwards precede, are all forwards of the warm-up and as many more.
    """
    chunk, device, size = stage // p, stage % p, p if group is None else group
    warm = np.minimum(2 * (p - 1 - device) + (chunks - 1) * size, m * chunks)
    before = np.minimum(warm + (chunks - 1 - chunk) * size + 1, m * chunks)
    forward = _of_chunk(before, m, size, chunk, chunks) - 1
    complete = (m - 1) // size * size  # micro-batches of all groups but the last
    done = np.maximum(complete * chunks + (chunk + 1) * (m - complete) - 1 - warm, 0)
    backward = m - 1 - _of_chunk(done, m, size, chunks - 1 - chunk, chunks)
    none = np.zeros_like(forward)
    return Missed(forward, none, none), Missed(none, backward, none)


def forwards_before_return(
    p: int, device: Counts, m: int, chunks: int, group: int | None = None
) -> Counts:
    """Most forwards of one chunk of a device before the first backward of its last chunk."""
    size = group or p
    warm = np.minimum(2 * (p - 1 - device) + (chunks - 1) * size, m * chunks)
    before = np.minimum(warm + 1, m * chunks)
    same = np.ones_like(before)
    numbers = (m * same, size * same, chunks * same)
    of_chunks = [_of_chunk(before, *numbers[:2], c * same, numbers[2]) for c in range(chunks)]
    forwards: Counts = np.max(of_chunks, axis=0)
    return forwards


def _of_chunk(number: Counts, m: Counts, size: Counts, place: Counts, chunks: Counts) -> Counts:
    """How many of the first `number` operations of one kind are of the chunk at this place."""
    groups = np.minimum(number // (size * chunks), m // size)
    rest = number - groups * size * chunks
    last = np.minimum(size, m - groups * size)  # micro-batches of the group that is not done
    number_of_chunk: Counts = groups * size + np.clip(rest - place * last, 0, last)
    return number_of_chunk
