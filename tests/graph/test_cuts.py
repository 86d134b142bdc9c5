"""Simulated splits and the critical paths that are cuts."""

from dataclasses import replace

import numpy as np
import pytest

from solver.bounds.latency_bottleneck import path_of
from solver.enumeration.engine import starts
from solver.graph import cuts
from solver.graph.cuts import evaluate, family_cuts
from tests.graph.drawn import problems_with_edges
from tests.recorded import Cases, digest, recorded, summary


@recorded("cuts")
def test_step_times_and_cuts_are_the_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """Of a few splits, in batches; after one batch a search may be stopped."""
    for name, problem, layers in problems_with_edges():
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
