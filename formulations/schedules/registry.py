"""All schedules, and what each states of itself; what one does not state, nobody assumes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from formulations.instance.search import Chunking, ScheduleName
from formulations.schedules.operations import (
    Kind,
    Missed,
    Order,
    gpipe,
    gpipe_missed,
    interleaved,
    interleaved_missed,
    one_f_one_b,
    one_f_one_b_missed,
    zb_h1,
    zb_h1_missed,
)


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
