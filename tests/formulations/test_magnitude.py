"""Figures beyond all meaning are refused before they overflow 64 bits."""

import pytest

from formulations.costs.magnitude import check_memory, check_step
from formulations.costs.tables import build_tables
from formulations.errors import InstanceError
from formulations.instance import Instance, Link
from tests.chain_instances import SLOW, chain_instance
from tests.small_instances import plain_shape

DAY_S = 86_400
#: Forward and backward of one GFLOP on SLOW for the four sequences of a step: 4 * 3 ms.
STEP_S_PER_GFLOP = 0.012


def slow_step(days: float) -> Instance:
    """A chain whose one block takes this long, forward and backward of all sequences."""
    return chain_instance([round(days * DAY_S / STEP_S_PER_GFLOP)], [SLOW])


def test_400_days_are_the_limit() -> None:
    """The limit itself and a day more."""
    check_step(400 * DAY_S * 1e9, "here", "it")
    line = r"^here: it needs 401 days for one step; allowed: at most 400 days"
    with pytest.raises(InstanceError, match=line):
        check_step(401 * DAY_S * 1e9, "here", "it")


def test_memory_of_1024_pib_is_the_limit() -> None:
    """What a step keeps is counted for all its sequences."""
    check_memory(1 << 60, "here")
    with pytest.raises(InstanceError, match=r"^here: 2.05e\+03 PiB .* at most 1024 PiB"):
        check_memory(1 << 61, "here")


def test_workload_beyond_its_gpu_is_refused() -> None:
    """Step time just inside the limit and beyond it; the embedding and head compute nothing."""
    build_tables(slow_step(399), plain_shape((1,)))
    with pytest.raises(InstanceError, match=r"cluster\.groups slow0: one slow needs 401 days"):
        build_tables(slow_step(401), plain_shape((1,)))


def test_bug_times_beyond_64_bits_were_a_traceback() -> None:
    """A step of 10^30 s is one line."""
    with pytest.raises(InstanceError, match="days for one step"):
        build_tables(slow_step(1e25), plain_shape((1,)))


def test_link_that_takes_years_is_refused() -> None:
    """One byte in 10^9 s: the gradients alone take years, alike in every shape."""
    instance = chain_instance([1], [SLOW])
    link = Link(bandwidth_bytes_per_s=1e-9, latency_s=0)
    group = instance.cluster.groups[0].model_copy(update={"inter_node": link})
    cluster = instance.cluster.model_copy(update={"groups": (group,)})
    with pytest.raises(InstanceError, match="cluster: the slowest link needs"):
        build_tables(instance.model_copy(update={"cluster": cluster}), plain_shape((1,)))
