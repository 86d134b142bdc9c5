"""Critical paths met so far: they tell which other plans cannot be faster, without simulation."""

import numpy as np
from numpy.typing import NDArray

from formulations.costs.tables import Array
from solver.heuristics.trial import Paths, Trial

Bounds = NDArray[np.float64]

#: Paths kept per number of micro-batches; the latest replace the oldest.
MOST_PATHS = 256


class PathPool:
    """Paths of one (schedule, number of devices and chunks), by micro-batches.

    The operation graph depends on neither split nor order, so every path of it bounds every plan
    with as many micro-batches on some replica.
    """

    def __init__(self) -> None:
        self._known: dict[int, Paths] = {}

    def learn(self, found: list[Paths]) -> None:
        """Adds the paths."""
        for paths in found:
            old = self._known.get(paths.micro_batches)
            rows = np.column_stack([paths.device, paths.weights, paths.transfers])
            if old is not None:
                before = np.column_stack([old.device, old.weights, old.transfers])
                rows = np.concatenate([before, rows])
            rows = rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])][-MOST_PATHS:]
            end = 1 + paths.weights.shape[1]
            self._known[paths.micro_batches] = Paths(
                paths.micro_batches, rows[:, 1:end], rows[:, end:], rows[:, 0]
            )

    def bound_ns(self, trial: Trial, splits: Array) -> Bounds:
        """[N] step time of every split at least; exact in floating point below 2^53 ns."""
        tail = trial.tail_ns(splits).T.astype(np.float64)
        bound: Bounds = np.max(tail, axis=1)
        for micro_batches, times in trial.runs(splits):
            known = self._known.get(micro_batches)
            if known is None:
                continue
            weight = [] if times.weight is None else [times.weight]
            parts = [times.forward, times.backward, *weight, times.send]
            terms = np.concatenate(parts).astype(np.float64)
            counts = np.concatenate([known.weights, known.transfers], axis=1)
            value = (terms.T @ counts.T).reshape(-1, len(splits), len(known.device))
            np.maximum(bound, (value.max(axis=0) + tail[:, known.device]).max(axis=1), out=bound)
        return bound
