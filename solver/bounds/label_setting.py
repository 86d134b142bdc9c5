"""Label setting (Desrochers and Soumis 1988) backwards through the layered graph.

Labels of `cycle_means` are ways to run the last stages; some stand for others, which go.
"""

from dataclasses import dataclass, replace

import numpy as np

from solver.layered.problem import INFINITY, Array, Mask


@dataclass(frozen=True)
class Labels:
    """L ways to run the stages from one on, sorted by node, ns.

    node: [L] where they start. latency: with the transfers into the first stage, and the tail of
    stage 0. embedding: all-reduce of tied embeddings, as far as the last stage decides it. length,
    sends, count: C, S and n of a window that begins with the first stage; C and S with the
    transfers into it; all 0 if there is none. limit: b_k of no earlier stage may be longer. edge,
    onward: the first edge and the label after it.
    """

    node: Array
    latency: Array
    embedding: Array
    length: Array
    sends: Array
    count: Array
    limit: Array
    edge: Array
    onward: Array

    def take(self, keep: Array) -> "Labels":
        """The labels with these indices."""
        return Labels(*(getattr(self, name)[keep] for name in self.__dataclass_fields__))


def no_stages(node: Array) -> Labels:
    """No stage is left."""
    none = np.zeros(len(node), dtype=np.int64)
    return Labels(node, none, none, none, none, none, none + INFINITY, none, none)


def _merged(labels: Labels, first: Array, beyond: Mask) -> Labels:
    """The labels of a node that are beyond its number as one, no longer than any."""
    keep = np.flatnonzero(~beyond)
    rest = np.flatnonzero(beyond)
    if not len(rest):
        return labels
    starts = np.flatnonzero(np.diff(first[rest], prepend=-1))
    least = {
        name: np.minimum.reduceat(getattr(labels, name)[rest], starts)
        for name in ("latency", "embedding")
    }
    nothing = np.zeros(len(starts), dtype=np.int64)
    merged = replace(
        labels.take(rest[starts]),
        **least,
        limit=np.maximum.reduceat(labels.limit[rest], starts),
        length=nothing,
        sends=nothing,
        count=nothing,
    )
    names = Labels.__dataclass_fields__
    both = Labels(
        *(np.concatenate([getattr(labels, name)[keep], getattr(merged, name)]) for name in names)
    )
    return both.take(np.argsort(both.node, kind="stable"))


def undominated(labels: Labels, keys: list[Array], most: int) -> Labels:
    """The labels that no other of their node stands for, `most` of them and one for the rest."""
    order = np.lexsort((*reversed(keys), labels.node))
    labels, key = labels.take(order), np.stack(keys)[:, order]
    for rank in range(most):
        starts = np.flatnonzero(np.diff(labels.node, prepend=-1))
        sizes = np.diff(starts, append=len(labels.node))
        if sizes.max(initial=0) <= rank:
            return labels
        first = np.repeat(starts, sizes)
        pivot = np.minimum(first + rank, len(labels.node) - 1)
        later = np.arange(len(first)) > first + rank
        dominated = later & (key[:, pivot] <= key).all(axis=0)
        if dominated.any():
            left = np.flatnonzero(~dominated)
            labels, key = labels.take(left), key[:, left]
    starts = np.flatnonzero(np.diff(labels.node, prepend=-1))
    first = np.repeat(starts, np.diff(starts, append=len(labels.node)))
    return _merged(labels, first, np.arange(len(first)) >= first + most)
