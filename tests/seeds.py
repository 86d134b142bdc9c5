"""Seeds of random cases: a few of a family by default, the others under `slow`."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature

import pytest

Test = Callable[..., None]


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


def each_of(known: Sequence[int], every: int) -> Callable[[Test], Test]:
    """The test of one `seed` for the first of every `every`, and, slow, for all others."""

    def of_seed(test: Test) -> Test:
        @wraps(test)
        def run(seeds: Sequence[int], **others: object) -> None:
            for seed in seeds:
                test(seed=seed, **others)

        stated = signature(test)
        named = [
            each.replace(name="seeds") if each.name == "seed" else each
            for each in stated.parameters.values()
        ]
        run.__signature__ = stated.replace(parameters=named)  # type: ignore[attr-defined]
        marked: Test = pytest.mark.parametrize("seeds", few_and_many(known, every))(run)
        return marked

    return of_seed
