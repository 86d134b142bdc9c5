"""Simulated splits and the critical paths that are cuts."""

from dataclasses import replace

import numpy as np
import pytest

from solver.graph.cuts import Cuts, evaluate, join_cuts
from solver.graph.edges import build_layers
from tests.enumeration.test_engine import NO_CUTOFF, chain_splits, chain_time, random_chain
from tests.seeds import one_each


@pytest.mark.parametrize("seed", one_each(range(40), 5))
def test_cuts_bound_every_split_and_reach_that_they_come_from(seed: int) -> None:
    """Step times are those of the witness; sums of a cut along splits are no longer than these."""
    problem = random_chain(seed)
    splits = np.array(list(chain_splits(problem)))
    arcs = np.zeros((len(splits), problem.num_stages), dtype=np.int64)
    found = evaluate(problem, arcs, splits, harvest=True)
    assert found.step_time.tolist() == [chain_time(problem, tuple(s)) for s in splits.tolist()]
    assert found.cuts is not None
    assert len(join_cuts([found.cuts, found.cuts])) == len(found.cuts)
    lengths = np.zeros((len(found.cuts), len(splits)), dtype=np.int64)
    for k, edges in enumerate(build_layers(problem, NO_CUTOFF)):
        runs = zip(edges.start.tolist(), edges.end.tolist(), strict=True)
        number = {run: i for i, run in enumerate(runs)}
        path = [number[run] for run in zip(*splits[:, k : k + 2].T.tolist(), strict=True)]
        lengths += found.cuts.values(k, edges)[:, path]
    assert (lengths.max(axis=0) == found.step_time).all()


def test_a_tail_counts_for_cuts_of_its_device() -> None:
    """Two cuts without operations, of devices 0 and 1; the tail of 7 ns is of device 1."""
    edges = build_layers(random_chain(1), NO_CUTOFF)[0]
    none, lane = np.zeros((2, 10), dtype=np.int64), np.zeros(2, dtype=np.int64)
    cuts = Cuts(none, lane, device=np.arange(2), num_devices=2)
    values = cuts.values(1, replace(edges, tail=np.full(len(edges), 7)))
    assert values[:, 0].tolist() == [0, 7]
