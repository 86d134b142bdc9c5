"""What routed experts cost; measured kernels: tests/bench/test_accuracy."""

import pytest

from formulations.costs import experts
from formulations.instance import Link
from formulations.instance.sizes import MoeSizes
from tests.architectures import MIXTRAL, build
from tests.oracles.agreement import pages_suffice
from tests.oracles.cases import drawn
from tests.recorded import Cases, recorded

test_pages_suffice = pages_suffice(7, 13, 24, 44)


@recorded("experts")
def test_products_and_members_are_the_recorded_ones() -> Cases:
    """Of every kind of layer; who shares a node, and an all-to-all of 1 MB among them."""
    for name, instance, plan, _ in drawn(7, 13, 24, 33, 44):
        config, groups = plan.config, instance.cluster.groups
        if not config.per_stage:
            members, (group, *_) = experts.members_of(instance, config), groups
            links = group.intra_node, group.inter_node
            seconds = [
                experts.grouped_s(run.layer, group.gpu, "fp8", 2, 3, members, 2)
                for run in instance.workload.layer_runs
            ]
            ranks = [experts.ranks_per_node(instance, config, j) for j in range(len(groups))]
            sent_s = experts.all_to_all_s(members, 1e6, *links, 3.0, ranks[0])
            shared = [members.ep, members.together, *members.node_groups]
            yield name, [*map(list, seconds), ranks, sent_s, shared]


@pytest.mark.parametrize(("shared", "etp_tp", "etp_1"), [(0, 2, 1), (1, 3, 2), (2, 3, 2)])
def test_bug_shared_experts_exchange_tokens_of_their_own(
    shared: int, etp_tp: int, etp_1: int
) -> None:
    """Attention, routed experts unless they are whole, and all shared ones together: one each."""
    moe = MoeSizes(experts=8, experts_per_token=2, ffn_size=64, shared_experts=shared)
    block = build(MIXTRAL.but(moe=moe), 8).layers[1]
    assert (block.forward_all_reduces, block.backward_all_reduces) == (etp_tp, etp_tp)
    unsplit = block.with_whole_experts()
    assert (unsplit.forward_all_reduces, unsplit.backward_all_reduces) == (etp_1, etp_1)


def test_bug_all_to_all_inside_a_node_that_holds_a_whole_group() -> None:
    """Groups of 4 on nodes of 4 and 2: some lie on one node, where three quarters go to others.

    So at 1 GB/s inside and between nodes without end three quarters of 8 MB count, and 3 starts.
    """
    inside = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-6)
    outside = Link(bandwidth_bytes_per_s=1e15, latency_s=0)
    seconds = experts.all_to_all_s(
        experts.Members(4, 2, (0, 1)), 8e6, inside, outside, senders=4, ranks=4
    )
    assert seconds == pytest.approx(6e6 / (1e9 * experts.ALL_TO_ALL_RATE) + 3e-6)
