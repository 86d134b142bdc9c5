"""Options that several commands share: ranges, times, numbers of workers."""

import pytest
import typer

from solver.cli.search_options import positive


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_limits_are_finite_and_above_0(value: float) -> None:
    assert positive(None) is None
    with pytest.raises(typer.BadParameter):
        positive(value)
