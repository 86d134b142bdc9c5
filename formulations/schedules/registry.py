"""All schedules: what a device does by each, in order, and what each states of itself.

What one does not state, nobody assumes.

GPipe (Huang et al., NeurIPS 2019): all forwards, then all backwards.

1F1B (PipeDream, Narayanan et al., SOSP 2019): one forward, one backward, in turn. Stage k of p
first runs w = min(p - 1 - k, m) forwards, then pairs F(w + i), B(i), then the remaining backwards;
so it holds min(p - k, m) micro-batches at most.

ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.1). The backward pass is
split: B gives the gradient of the input, on which the stage before waits, W those of the weights,
which only the optimizer waits for. Stage k runs 1F1B with B alone; from the k-th micro-batch on
each B is followed by the oldest W, so that k of them are put off at most, and fill the bubble at
the end. So p micro-batches are unfinished at most on every stage, as many as on the first stage of
1F1B. Bubble of equal stages without transfers: (p - 1)(F + B - W).

Interleaved 1F1B (Narayanan et al., SC 2021, section 2.2): v chunks of layers per device.
Megatron-LM's order: micro-batches go in groups of N, a group through chunk 0, then through chunk
1, and so on; backward the other way round. Device d warms up with 2 (p - 1 - d) + (v - 1) N
forwards, then one forward and one backward in turn. N is p unless
`--microbatch-group-size-per-virtual-pipeline-stage` says more: p to m, of which the last group, if
it has fewer, still has p (Megatron-Core 0.20, `pipeline_parallel/schedules.py`). Bubble of equal
stages without transfers: (p - 1)(F + B) / v, F and B those of a device.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.instance.search import Chunking, ScheduleName

Counts = NDArray[np.int64]


class Kind(IntEnum):
    """BACKWARD leaves the weight gradients to WEIGHT where a schedule splits the backward pass."""

    FORWARD = 0
    BACKWARD = 1
    WEIGHT = 2


class Operation(NamedTuple):
    """One operation of one micro-batch on a virtual stage: chunk c of device d is c p + d."""

    kind: Kind
    stage: int
    micro_batch: int


#: Operations of one device, in order.
Order = Iterator[Operation]


class Missed(NamedTuple):
    """What a latency path of stage k leaves out: forwards, backwards, weight gradients; counts.

    A latency path: one micro-batch through all stages, to the last and back, with all transfers,
    and beside it m - 1 operations of each kind on stage k, less what is missed. Its length is a
    lower bound of the time when the last backward of stage 0 ends, for every split.
    """

    forward: Counts
    backward: Counts
    weight: Counts


def gpipe(num_devices: int, device: int, micro_batches: int, *chunking: object) -> Order:
    """Forwards of all micro-batches, then their backwards."""
    for kind in (Kind.FORWARD, Kind.BACKWARD):
        for i in range(micro_batches):
            yield Operation(kind, device, i)


def gpipe_missed(p: Counts, stage: Counts, m: Counts, *chunking: object) -> tuple[Missed, ...]:
    """Nothing: every forward of a stage comes before any of its backwards.

    Micro-batch m - 1 goes down from stage k after all its forwards; on the last stage it is
    followed by B(0), which goes up to stage k, whose m backwards come before B(m - 1) goes up.
    """
    none = np.zeros_like(stage)
    return (Missed(none, none, none),)


def one_f_one_b(num_devices: int, device: int, micro_batches: int, *chunking: object) -> Order:
    """Warm-up, pairs, cool-down."""
    warm = min(num_devices - 1 - device, micro_batches)
    for i in range(warm):
        yield Operation(Kind.FORWARD, device, i)
    for i in range(micro_batches):
        if warm + i < micro_batches:
            yield Operation(Kind.FORWARD, device, warm + i)
        yield Operation(Kind.BACKWARD, device, i)


def one_f_one_b_missed(
    p: Counts, stage: Counts, m: Counts, *chunking: object
) -> tuple[Missed, Missed]:
    """W = min(p - 1 - k, m - 1) forwards, or as many backwards.

    After micro-batch 0 came back to B(k, 0), what is left on stage k: all but w + 1 forwards. Or
    all of stage k up to F(k, m - 1), all but w + 1 backwards, then micro-batch m - 1 down and back.
    """
    warm = np.minimum(p - 1 - stage, m - 1)
    none = np.zeros_like(warm)
    return Missed(warm, none, none), Missed(none, warm, none)


def zb_h1(num_devices: int, device: int, micro_batches: int, *chunking: object) -> Order:
    """1F1B with a W behind each B from the k-th pair on, or the last pair; then those put off."""
    last_pair = micro_batches - min(num_devices - 1 - device, micro_batches)
    done = 0
    for operation in one_f_one_b(num_devices, device, micro_batches):
        yield operation
        if operation.kind == Kind.BACKWARD and operation.micro_batch >= min(device, last_pair):
            yield Operation(Kind.WEIGHT, device, done)
            done += 1
    for i in range(done, micro_batches):
        yield Operation(Kind.WEIGHT, device, i)


def zb_h1_missed(p: Counts, stage: Counts, m: Counts, *chunking: object) -> tuple[Missed, ...]:
    """Those of 1F1B, and the weight gradients that are put off meanwhile.

    One micro-batch through all stages counts no weight gradients. Before the last backward of a
    stage min(k, m - 1, m - p + 1 + k) of them, but no less than 0, are put off; on the way
    down w more are still to come.
    """
    returned, down = one_f_one_b_missed(p, stage, m)
    put_off = np.minimum(np.minimum(stage, m - 1), np.maximum(m - (p - 1 - stage), 0))
    late = np.minimum(down.backward + put_off, m - 1)
    return returned._replace(weight=put_off), down._replace(weight=late)


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


def interleaved(
    num_devices: int, device: int, micro_batches: int, chunks: int, group: int | None
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


def interleaved_missed(
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


@dataclass(frozen=True)
class Schedule:
    """Operation order, and the properties that bounds and memory may use.

    order: operations of (p, device, m, chunks, group). missed: what latency paths leave out, for
    virtual stages of (p, stage, m, chunks, group). turns: whether stage k runs F(x + p - k)
    right after B(x), and B(x + 1) after that. prefixes: whether the order of fewer micro-batches is
    what is left without the last ones. interleaves: several chunks per device. splits_backward:
    weight gradients are operations of their own. settles: what a device holds at once does not grow
    with the micro-batches beyond `_SETTLED` v groups of them, if their remainder by these stays.
    """

    order: Callable[[int, int, int, int, int | None], Order]
    missed: Callable[..., tuple[Missed, ...]]
    turns: bool = False
    prefixes: bool = False
    interleaves: bool = False
    splits_backward: bool = False
    settles: bool = True


#: Micro-batches per virtual stage from which on the fullest moments of a device have all come.
_SETTLED = 4

SCHEDULES: dict[ScheduleName, Schedule] = {
    "1f1b": Schedule(one_f_one_b, one_f_one_b_missed, turns=True, prefixes=True),
    "gpipe": Schedule(gpipe, gpipe_missed, prefixes=True, settles=False),
    "interleaved": Schedule(interleaved, interleaved_missed, interleaves=True),
    "zb-h1": Schedule(zb_h1, zb_h1_missed, splits_backward=True),
}


def device_order(
    schedule: ScheduleName,
    num_devices: int,
    device: int,
    micro_batches: int,
    chunks: int = 1,
    group: int | None = None,
) -> Order:
    """Operations of one device in order; chunks, group: as `Chunking`."""
    return SCHEDULES[schedule].order(num_devices, device, micro_batches, chunks, group)


def as_array(operations: Order) -> NDArray[np.int64]:
    """[N, 3] kind, virtual stage, micro-batch."""
    return np.fromiter(chain.from_iterable(operations), dtype=np.int64).reshape(-1, 3)


#: Micro-batches whose activations are held at once, at moments such that no other has more of
#: everything: those between forward and backward, per chunk, then those that wait for their weight
#: gradients alone.
Moments = tuple[tuple[int, ...], ...]


def held(
    schedule: ScheduleName,
    num_devices: int,
    device: int,
    micro_batches: int,
    chunks: int = 1,
    group: int | None = None,
) -> Moments:
    """What a device holds at its fullest moments."""
    together = group or num_devices
    enough = _SETTLED * together * chunks + micro_batches % together
    if SCHEDULES[schedule].settles:
        micro_batches = min(micro_batches, enough)
    return _held(schedule, num_devices, device, micro_batches, (chunks, group))


@lru_cache(maxsize=4096)
def _held(
    schedule: ScheduleName, num_devices: int, device: int, micro_batches: int, chunking: Chunking
) -> Moments:
    ops = as_array(device_order(schedule, num_devices, device, micro_batches, *chunking))
    chunk = (ops[:, 1] // num_devices)[:, None] == np.arange(chunking[0])
    forward, backward, weight = (np.cumsum(chunk & (ops[:, :1] == kind), axis=0) for kind in Kind)
    waiting = (backward - weight) * SCHEDULES[schedule].splits_backward
    return _maximal(np.column_stack([forward - backward, waiting.sum(axis=1)]).tolist())


@lru_cache(maxsize=4096)
def stage_moments(
    schedule: ScheduleName,
    num_devices: int,
    stage: int,
    micro_batches: int,
    chunks: int = 1,
    group: int | None = None,
) -> Moments:
    """What a virtual stage holds at its fullest moments: as of a device with this chunk alone."""
    chunk, device = divmod(stage, num_devices)
    moments = held(schedule, num_devices, device, micro_batches, chunks, group)
    return _maximal((moment[chunk], moment[-1]) for moment in moments)


def _maximal(moments: Iterable[Iterable[int]]) -> Moments:
    """Distinct ones, in order, that no other is at least as large as in all components."""
    rows = np.array(sorted({*map(tuple, moments)}))  # `np.unique` loads masked arrays
    covered = np.all(rows[None] >= rows[:, None], axis=2).sum(axis=1) > 1
    return tuple(map(tuple, rows[~covered].tolist()))


def in_flight(schedule: ScheduleName, num_stages: int, stage: int, micro_batches: int) -> int:
    """Most micro-batches that a stage holds whole; schedules of one chunk per device."""
    if schedule == "gpipe":
        return micro_batches
    return min(num_stages - stage, micro_batches)
