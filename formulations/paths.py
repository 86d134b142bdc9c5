"""Paths of the operation graph as lower bounds of the time when a stage is done.

A path visits operations of stages and transfers between them. The graph of (schedule,
p, m) does not depend on the split, the placement or the shares, so a path that was critical for
one plan bounds all plans: the last operation of its device ends no earlier than the sum of the
times along it.

Where `SCHEDULES[..].prefixes` it also bounds replicas with more micro-batches. The graph of m is
what is left of the graph of m' > m when micro-batches m.. are removed: 1F1B runs min(p-1-k, m)
forwards first, and the order of the first m micro-batches on every stage is the same for m and m'
(GPipe alike). Each edge of the smaller graph is thus a path of the larger one, at least as long,
and the last operation of a device comes after its last one of micro-batch m - 1.
"""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class PathCut:
    """How often a path to the last operation of `device` visits what; S virtual stages.

    operations: [kinds, S] forwards, backwards and, where they are split off, weight gradients.
    transfers: [S - 1] per boundary, both ways.
    """

    micro_batches: int
    device: int
    operations: tuple[tuple[int, ...], ...]
    transfers: tuple[int, ...]

    def sends(self, blocking: bool) -> tuple[int, ...]:
        """[S - 1] how often each boundary's transfer time counts; blocking: with its sender."""
        if not blocking:
            return self.transfers
        forward, backward, *_ = self.operations
        return tuple(f + b for f, b in zip(forward[:-1], backward[1:], strict=True))
