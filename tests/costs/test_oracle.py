"""docs/cost.md suffices to work all costs of a plan out: `tests.oracles` does so."""

from collections.abc import Callable

import pytest

from tests.oracles.agreement import check_costs, check_layers, check_memory
from tests.seeds import each_of


@pytest.mark.parametrize("check", [check_costs, check_memory, check_layers])
@each_of(range(400), 40)
def test_pages_suffice(check: Callable[[int], None], seed: int) -> None:
    """Costs of random plans, what their memory holds, FLOPs and parameters of layers."""
    check(seed)
