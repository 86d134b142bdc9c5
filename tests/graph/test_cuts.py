"""Simulated splits and the critical paths that are cuts."""

from dataclasses import replace

import numpy as np
import pytest

from solver.bounds.latency_bottleneck import path_of
from solver.enumeration.engine import starts
from solver.graph import cuts
from solver.graph.cuts import evaluate, family_cuts, join_cuts
from solver.graph.edges import build_layers
from tests.graph.drawn import NO_CUTOFF, chain_splits, chain_time, problems, random_chain
from tests.recorded import Cases, digest, recorded, summary
from tests.seeds import one_each


@pytest.mark.parametrize("seed", one_each(range(40), 5))
def test_cuts_bound_every_split_and_reach_that_they_come_from(seed: int) -> None:
    """Step times are those of the witness; sums of a cut along splits are no longer than these."""
    problem = random_chain(seed)
    splits = np.array(list(chain_splits(problem)))
    arcs = np.zeros((len(splits), problem.num_stages), dtype=np.int64)
    simulated = evaluate(problem, arcs, splits, harvest=True)
    assert simulated.step_time.tolist() == [chain_time(problem, tuple(s)) for s in splits.tolist()]
    assert simulated.cuts is not None
    assert len(join_cuts([simulated.cuts, simulated.cuts])) == len(simulated.cuts)
    lengths = np.zeros((len(simulated.cuts), len(splits)), dtype=np.int64)
    for k, edges in enumerate(build_layers(problem, NO_CUTOFF)):
        runs = zip(edges.start.tolist(), edges.end.tolist(), strict=True)
        number = {run: i for i, run in enumerate(runs)}
        path = [number[run] for run in zip(*splits[:, k : k + 2].T.tolist(), strict=True)]
        lengths += simulated.cuts.values(k, edges)[:, path]
    assert (lengths.max(axis=0) == simulated.step_time).all()


@recorded("cuts")
def test_step_times_and_cuts_are_the_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """Of a few splits, in batches; after one batch a search may be stopped."""
    for name, problem in problems().items():
        layers = build_layers(problem, NO_CUTOFF)
        if not all(map(len, layers)):
            continue
        arcs, splits = path_of(layers, starts(layers))
        monkeypatch.setattr(cuts, "BATCH_BYTES", 1 << 10)
        simulated = evaluate(problem, arcs, splits, harvest=True)
        monkeypatch.setattr(cuts, "BATCH_BYTES", 1 << 14)
        unlike = [m + n * problem.num_devices for n, m in enumerate(problem.micro_batches)]
        lanes = replace(problem, micro_batches=tuple(unlike))
        many = arcs[:1].repeat(999, 0), splits[:1].repeat(999, 0)
        first = evaluate(lanes, *many, stop=lambda: True)
        monkeypatch.undo()
        assert simulated.cuts is not None
        values = [simulated.cuts.values(k, edges) for k, edges in enumerate(layers)]
        family = family_cuts(problem)
        paths = summary([simulated.cuts, values, family, family.take(np.array([0, 2]))])
        times = sorted(simulated.step_time.tolist())
        yield name, [times, len(first.step_time), len(family), digest(paths)]
