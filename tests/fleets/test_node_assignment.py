"""Assignments equal the best of all permutations, and with sources the recorded ones."""

import random
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations.costs.intervals import Array
from formulations.fleet import Pipeline
from formulations.transition import Links
from solver.fleets import node_assignment
from tests.recorded import Cases, digest, recorded
from tests.template_cases import LAYERS, cluster, random_template


@st.composite
def tables(draw: st.DrawFn) -> Array:
    """Up to four rows, up to two columns more, some places forbidden."""
    rows = draw(st.integers(0, 4))
    columns = rows + draw(st.integers(0, 2))
    entries = st.lists(st.integers(-1, 9), min_size=rows * columns, max_size=rows * columns)
    return np.array(draw(entries), dtype=np.int64).reshape(rows, columns)


def pipelines_on(
    rng: random.Random, nodes: Sequence[int], groups: Sequence[int]
) -> tuple[Pipeline, ...]:
    """Templates cut at random, one after the other, on one or two of the nodes each."""
    pipelines = list[Pipeline]()
    while nodes:
        taken, nodes = tuple(nodes[: 1 + rng.randrange(2)]), nodes[2:]
        template = random_template(rng, LAYERS, tuple(groups[n] for n in taken), [2, 2])
        pipelines.append(Pipeline(template, taken, 1))
    return tuple(pipelines)


@settings(max_examples=80, deadline=None)
@given(tables())
def test_no_permutation_is_better(table: Array) -> None:
    """By the sum, and by the largest cost; None means that there is no assignment."""
    assert node_assignment.cheapest(np.zeros((2, 1), dtype=np.int64)) is None
    rows, columns = table.shape
    every = [table[range(rows), chosen].tolist() for chosen in permutations(range(columns), rows)]
    every = [costs for costs in every if node_assignment.FORBIDDEN not in costs]
    chosen = node_assignment.cheapest(table)
    assert (chosen is None) == (not every)
    if chosen is not None:
        assert len(set(chosen.tolist())) == rows
        costs = table[np.arange(rows), chosen]
        assert node_assignment.FORBIDDEN not in costs
        assert costs.sum() == min(map(sum, every))
    if rows:
        assert node_assignment.least_largest(table) == min(map(max, every), default=None)


@pytest.mark.parametrize("large", [0, 200])
@recorded("node_assignment")
def test_assignments_are_the_recorded_ones(large: int, monkeypatch: pytest.MonkeyPatch) -> Cases:
    """Of pipelines on up to eight nodes, one of which is lost, and of others on all that are left.

    They receive no faster than the bound says.
    """
    monkeypatch.setattr(node_assignment, "LARGE", large)
    for seed in range(40):
        rng, machines = random.Random(seed), cluster(5, seed % 4)
        nodes = rng.sample(range(len(machines.node_groups)), len(machines.node_groups))
        ready = sorted(rng.sample(nodes, len(nodes) - 1))
        old = pipelines_on(rng, nodes, machines.node_groups)
        new = pipelines_on(rng, rng.sample(ready, len(ready)), machines.node_groups)
        sizes = tuple(rng.randint(1, 9) * 10**8 for _ in range(LAYERS))
        situation = node_assignment.Situation(
            Links(machines), machines.node_groups, old, tuple(ready), sizes
        )
        assigner = node_assignment.NodeAssigner(situation, [pipeline.template for pipeline in new])
        best = assigner.best()
        copies = digest([[copy.layer, copy.source, copy.target] for copy in best.copies])
        told = [best.transfer_ns, assigner.least_receiving_ns, copies]
        yield f"{seed} {large}", [*told, *map(list, best.nodes)]
        assert best.transfer_ns >= assigner.least_receiving_ns
