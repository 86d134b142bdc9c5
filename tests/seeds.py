"""Seeds of random cases: a few of a family by default, the others under `slow`."""

from collections.abc import Sequence

import pytest


def one_each(known: Sequence[object], every: int) -> list[object]:
    """A parameter per seed or case, slow but for the first of every `every`."""
    return [
        pytest.param(seed, marks=pytest.mark.slow) if n % every else seed
        for n, seed in enumerate(known)
    ]


def few_and_many(known: Sequence[int], every: int) -> list[object]:
    """Two parameters, each a sequence of seeds: the first of every `every`, and the others, slow.

    For tests that go through their seeds themselves, as one is checked in milliseconds.
    """
    others = [seed for n, seed in enumerate(known) if n % every]
    return [
        pytest.param(known[::every], id="few"),
        pytest.param(others, id="many", marks=pytest.mark.slow),
    ]
