"""The cuts that refute splits, with what each still costs at least from every node on."""

import numpy as np

from solver.layered.cuts import Cuts, join_cuts
from solver.layered.edges import Layers, to_go
from solver.layered.problem import Array

#: Cuts kept, and entries of their tables; cuts learned at a time.
MAX_CUTS = 192
MOST_ENTRIES = 1 << 25
LEARNED = 8


class CutTables:
    """Cuts of one round.

    values: per stage [C, M] what an edge adds. completions: [C, nodes] least sums to the end.
    refuted: [C] prefixes that a cut has refuted. combined: one more cut, see `Enumerator`.
    """

    def __init__(self, layers: Layers, cuts: Cuts, combined: list[Array] | None) -> None:
        self.layers, self.combined, self.round = layers, combined, 0
        self.most_cuts = max(1, min(MAX_CUTS, MOST_ENTRIES // sum(map(len, layers))))
        self._use(self._strongest(cuts))

    def _strongest(self, cuts: Cuts) -> Cuts:
        """The cuts with the highest bounds over all splits."""
        sample = cuts.take(np.arange(0, len(cuts), max(1, len(cuts) // (8 * self.most_cuts))))
        roots = []
        for first in range(0, len(sample), 64):
            part = sample.take(np.arange(first, min(first + 64, len(sample))))
            values = [part.values(k, edges) for k, edges in enumerate(self.layers)]
            roots.append(to_go(self.layers, values)[0][:, 0])
        keep = np.argsort(-np.concatenate(roots), kind="stable")[: self.most_cuts]
        return sample.take(keep)

    def _use(self, cuts: Cuts) -> None:
        self.cuts = cuts
        self.values = [cuts.values(k, edges) for k, edges in enumerate(self.layers)]
        if self.combined is not None:
            pairs = zip(self.values, self.combined, strict=True)
            self.values = [np.concatenate([own, one[None]]) for own, one in pairs]
        self.refuted = np.zeros(len(self.values[0]), dtype=np.int64)
        self.completions = to_go(self.layers, self.values)

    def learn(self, cuts: Cuts, edges: Array, cutoff: int) -> None:
        """Takes those of `cuts` that together refute most of the complete splits `edges` [N, p].

        Beyond the number that is kept, the cuts that refuted least have to go.
        """
        values = [cuts.values(k, one)[:, edges[:, k]] for k, one in enumerate(self.layers)]
        refutes = np.sum(values, axis=0) >= cutoff
        chosen: list[int] = []
        while len(chosen) < LEARNED and refutes.any():
            chosen.append(int(refutes.sum(axis=1).argmax()))
            refutes = refutes & ~refutes[chosen[-1]]
        if chosen:
            room = self.most_cuts - len(chosen)
            refuted = self.refuted[: len(self.cuts)]
            old = self.cuts.take(np.argsort(-refuted, kind="stable")[: max(0, room)])
            self.round += 1
            self._use(join_cuts([old, cuts.take(np.array(chosen))]))
