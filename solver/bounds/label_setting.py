"""Label setting (Desrochers and Soumis 1988) backwards through the layered graph.

Labels of `cycle_means` are ways to run the last stages; some stand for others, which go.
"""

from dataclasses import dataclass, replace

import numpy as np

from solver.layered.problem import INFINITY, Array


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


def _merged(labels: Labels) -> Labels:
    """One label per node, without a window, that stands for all of the node."""
    starts = np.flatnonzero(np.diff(labels.node, prepend=-1))
    least = {
        name: np.minimum.reduceat(getattr(labels, name), starts)
        for name in ("latency", "embedding")
    }
    nothing = np.zeros(len(starts), dtype=np.int64)
    return replace(
        labels.take(starts),
        **least,
        limit=np.maximum.reduceat(labels.limit, starts),
        length=nothing,
        sends=nothing,
        count=nothing,
    )


def undominated(labels: Labels, keys: list[Array], most: int) -> Labels:
    """The labels that no other of their node stands for.

    A label is compared with one of its node at a time, the first in the order of the keys. After
    `most` comparisons in all, one label stands for what is left of a node.
    """
    order = np.lexsort((*reversed(keys), labels.node))
    node, key, left = labels.node[order], np.stack(keys)[:, order], np.arange(len(order))
    found, compared = list[Array](), 0
    while len(left) and compared <= most:
        compared += len(left)
        starts = np.flatnonzero(np.diff(node[left], prepend=-1))
        first = np.repeat(starts, np.diff(starts, append=len(left)))
        found.append(left[starts])
        others = np.flatnonzero((key[:, first] > key).any(axis=0))
        left, key = left[others], key[:, others]
    kept = labels.take(order[np.sort(np.concatenate(found))])
    return kept if not len(left) else _joined(kept, _merged(labels.take(order[left])))


def _joined(one: Labels, other: Labels) -> Labels:
    names = Labels.__dataclass_fields__
    both = Labels(
        *(np.concatenate([getattr(labels, name) for labels in (one, other)]) for name in names)
    )
    return both.take(np.argsort(both.node, kind="stable"))
