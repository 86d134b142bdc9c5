"""Traffic of context parallelism."""

import pytest

from formulations.costs.context import context_methods, context_s, method_of
from formulations.instance import Link
from formulations.plan import Degrees
from tests.chain_instances import equal_nodes
from tests.oracles.agreement import pages_suffice
from tests.oracles.cases import drawn
from tests.recorded import Cases, recorded
from tests.small_instances import layer

test_pages_suffice = pages_suffice(2, 7, 13, 15)


@recorded("context")
def test_traffic_is_the_recorded_one() -> Cases:
    for name, instance, plan, _ in drawn(2, 7, 13, 15, 24, 33):
        (group, *_), (_, block, *_) = instance.cluster.groups, instance.workload.layers
        for method in ("ring", "all_to_all"):
            told = instance.but(search={"context_method": method})
            seconds = [context_s(told, block, group, Degrees(tp=2, cp=cp), 3) for cp in (1, 2)]
            yield f"{name} {method}", [*map(list, seconds), context_methods(told, plan.config)]


def test_bug_weighted_sums_wait_for_the_attention() -> None:
    """An all-to-all brings queries, keys and values, a second one the sums: two starts a pass.

    Of 8 MB of queries and as many of keys and values a quarter each of three quarters, at 1 GB/s.
    """
    base = equal_nodes(1, 8, 1, 1).instance
    attention = layer("block", 1, 0, 0).but(key_value_bytes=8 * 10**6, query_bytes=8 * 10**6)
    (group,) = base.cluster.groups
    group = group.but(intra_node=Link(bandwidth_bytes_per_s=1e9, latency_s=1e-6))
    assert method_of(attention, 1, 4, 12) == "all_to_all"
    assert method_of(attention, 1, 8, 12) == method_of(attention, 1, 1, 12) == "ring"
    assert method_of(attention, 1, 2, 12) == "all_to_all"  # 32 MB of 48
    # as many bytes either way, twice 48 MB and 4 x 24 MB: the ring
    assert method_of(attention.but(query_bytes=4 * 10**6), 1, 1, 12) == "ring"
    seconds = context_s(base, attention, group, Degrees(tp=1, cp=4), 1)
    assert seconds == pytest.approx((3 / 4 * 16e-3 / 4 + 2 * 3e-6,) * 2)
