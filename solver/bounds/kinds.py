"""Kinds: sets of node groups that are taken for one; a kind costs what its groups cost at least."""

from collections.abc import Sequence

import numpy as np

from formulations.costs.transfers import ZoneTerms
from solver.bounds.node_costs import LeastCosts
from solver.layered.placements import allowed_layers
from solver.layered.problem import Array, Intervals, Mask

Kind = tuple[int, ...]  #: node groups


def kinds_of(intervals: Intervals, apart: float) -> list[Kind]:
    """The groups used, those together whose speeds are less than this relative difference apart."""
    work = (intervals.forward + intervals.backward)[:, 0, -1]
    used = np.flatnonzero(intervals.tables.shape.nodes_used)
    kinds: list[list[int]] = []
    for j in used[np.argsort(work[used], kind="stable")].tolist():
        if kinds and work[j] < work[kinds[-1][0]] * (1 + apart):
            kinds[-1].append(j)
        else:
            kinds.append([j])
    return [tuple(kind) for kind in kinds]


def least_of(values: Array, kinds: Sequence[Kind]) -> Array:
    """[J, ..] least of `values` [groups, ..] over the groups of every kind."""
    return np.stack([values[list(kind)].min(axis=0) for kind in kinds])


def allowed_on(intervals: Intervals, stage: int, kind: Kind, share: int) -> Mask:
    """[n, n] layers that some group of the kind may run as a stage with so many micro-batches."""
    masks = [allowed_layers(intervals, stage, [j], [share]) for j in kind]
    allowed: Mask = np.any(masks, axis=0)
    return allowed


def least_sends(
    costs: Sequence[LeastCosts], kinds: Sequence[Kind], terms: ZoneTerms, flows: int
) -> Array:
    """[J, J] least transfer between stages on two kinds: the slower side counts.

    Or the link between their zones, which `flows` replicas at least share: those that no node
    border parts, or where no stage spans zones all of them. The least of all messages.
    """
    outside = np.array([one.outside for one in costs])
    send: Array = np.maximum(outside[:, None], outside)
    for j, one in enumerate(costs):
        if one.inside is not None:
            send[j, j] = min(one.inside, one.outside)
    if not terms.tables.instance.cluster.has_zones:
        return send
    zone = terms.zone_of_group
    across = [
        [
            min(
                min(terms.send_ns(i, j, flows)) if zone[i] != zone[j] else 0
                for i in one
                for j in other
            )
            for other in kinds
        ]
        for one in kinds
    ]
    least: Array = np.maximum(send, np.array(across))
    return least
