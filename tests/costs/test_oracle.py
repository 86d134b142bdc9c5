"""docs/cost.md suffices to work all costs of a plan out: `tests.oracles` does so."""

from collections.abc import Callable, Sequence

import pytest

from tests.oracles.agreement import check_costs, check_layers, check_memory
from tests.seeds import few_and_many


@pytest.mark.parametrize("check", [check_costs, check_memory, check_layers])
@pytest.mark.parametrize("seeds", few_and_many(range(400), 40))
def test_pages_suffice(check: Callable[[int], None], seeds: Sequence[int]) -> None:
    """Costs of random plans, what their memory holds, FLOPs and parameters of layers."""
    for seed in seeds:
        check(seed)
