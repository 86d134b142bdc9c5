"""Options that several commands share: ranges, times, numbers of workers."""

import os

import pytest
import typer

from formulations.errors import PlannerError
from solver.cli.search_options import all_cores, num_workers, positive
from solver.options import MAX_WORKERS


def test_workers_are_as_many_as_cores() -> None:
    """Of this machine, or all that a Ray cluster may have; its address needs its engine."""
    cores = len(os.sched_getaffinity(0))
    assert num_workers(None, "processes", None) == all_cores() == cores
    assert num_workers(3, "processes", None) == 3
    assert num_workers(None, "ray", "host:1") == MAX_WORKERS
    with pytest.raises(PlannerError, match="--address is that of a Ray cluster; found: --engine"):
        num_workers(None, "processes", "host:1")


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_limits_are_finite_and_above_0(value: float) -> None:
    """None stays None."""
    assert positive(None) is None
    with pytest.raises(typer.BadParameter):
        positive(value)
