"""Patterns near other ones: layers moved, stages and blocks of nodes exchanged or changed.

Patterns are those of `block_trial`; `pattern` is one of them, N = 1.
"""

from random import Random

import numpy as np

from formulations.costs.tables import Array
from solver.heuristics.block_trial import Patterns
from solver.heuristics.moves import near_splits

#: Pairs of stages exchanged at once at most, and layers moved, to leave a local optimum.
EXCHANGES = 3
LAYERS = 4
#: Share of the exchanged stages whose layers go along.
WITH_LAYERS = 0.7


def _splits(counts: Array) -> Array:
    """[N, p + 1] from the numbers of layers [N, p]."""
    return np.concatenate([np.zeros_like(counts[:, :1]), np.cumsum(counts, axis=1)], axis=1)


def near_patterns(pattern: Patterns) -> Patterns:
    """One layer moved, or two stages exchanged: both blocks, with or without layers, or one."""
    groups, split = pattern.groups[0], pattern.splits[0]
    moved = near_splits(split)
    parts = [Patterns(np.repeat(pattern.groups, len(moved), axis=0), moved)]
    first, second = np.triu_indices(len(split) - 1, 1)
    rows = np.arange(len(first))
    counts = np.repeat(np.diff(split)[None], len(rows), axis=0)
    counts[rows, first], counts[rows, second] = counts[rows, second], counts[rows, first]
    same = np.repeat(split[None], len(rows), axis=0)
    for blocks, splits in (
        ((0, 1), _splits(counts)),
        ((0, 1), same),
        ((0,), same),
        ((1,), same),
    ):
        near = np.repeat(groups[None], len(rows), axis=0)
        for b in blocks:
            near[rows, b, first], near[rows, b, second] = groups[b, second], groups[b, first]
        parts.append(Patterns(near, splits).take((near != groups).any(axis=(1, 2))))
    return Patterns.joined(parts)


def changed_patterns(pattern: Patterns, rank: Array) -> Patterns:
    """One block of a stage on faster nodes, alone or with another on slower ones.

    rank: [J] of the node groups by speed, 0 the fastest.
    """
    groups = pattern.groups[0]
    used = np.flatnonzero(rank < len(rank))
    cells = np.array([(b, k, j) for b, k in np.ndindex(*groups.shape) for j in used])
    change = rank[cells[:, 2]] - rank[groups[cells[:, 0], cells[:, 1]]]
    faster, slower = cells[change < 0], cells[change > 0]
    first = np.concatenate([faster, np.repeat(faster, len(slower), axis=0)])
    second = np.tile(slower, (len(faster), 1))
    near = np.repeat(pattern.groups, len(first), axis=0)
    rows = np.arange(len(first))
    near[rows[len(faster) :], second[:, 0], second[:, 1]] = second[:, 2]
    near[rows, first[:, 0], first[:, 1]] = first[:, 2]
    return Patterns(near, np.repeat(pattern.splits, len(near), axis=0))


def shaken(pattern: Patterns, random: Random) -> Patterns:
    """A few pairs of stages exchanged, and a few layers moved; at least two stages."""
    groups, counts = pattern.groups.copy(), np.diff(pattern.splits[0])
    stages = range(len(counts))
    for _ in range(random.randint(1, EXCHANGES)):
        pair = random.sample(stages, 2)
        groups[:, :, pair] = groups[:, :, pair[::-1]]
        if random.random() < WITH_LAYERS:
            counts[pair] = counts[pair[::-1]]
    for _ in range(random.randint(0, LAYERS)):
        source, target = random.sample(stages, 2)
        if counts[source] > 1:
            counts[[source, target]] += [-1, 1]
    return Patterns(groups, _splits(counts[None]))
