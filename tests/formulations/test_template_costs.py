"""What the stages of a template cost, by hand."""

import pytest

from formulations.costs.template_costs import template_costs
from formulations.fleet import Strategy
from formulations.template import Template, stage_on
from tests.equal_nodes import equal_nodes
from tests.small_instances import layer, workload

STRATEGY = Strategy(micro_batch=1, recompute=("none",), schedule="1f1b")
CUTS = ((0, 2), (2, 4))
#: Two GPUs of a node, and one of each of two.
INSIDE = Template(
    node_groups=(0,),
    stages=tuple(
        stage_on(layers=layers, node=0, first_gpu=k, gpus=1) for k, layers in enumerate(CUTS)
    ),
)
BETWEEN = Template(
    node_groups=(0, 0),
    stages=tuple(
        stage_on(layers=layers, node=k, first_gpu=0, gpus=1) for k, layers in enumerate(CUTS)
    ),
)


@pytest.mark.parametrize(
    ("template", "send_ns", "embedding_ns"),
    [
        # 1 MB at 10 GB/s, and 1 us; 512 of 500 rows of 2000 gradients of 4 bytes, and twice 1 us
        (INSIDE, 100_000 + 1_000, 409_600 + 2_000),
        # the same at 1 GB/s, with 10 us each
        (BETWEEN, 1_000_000 + 10_000, 4_096_000 + 20_000),
    ],
)
def test_links_of_a_template(template: Template, send_ns: int, embedding_ns: int) -> None:
    """Messages, and the gradient of a tied matrix, inside a node and between two."""
    base = equal_nodes(2, 2, 1, 1, 2).instance
    chain = [layer(kind, 1, 0, 0) for kind in ("embedding", "block", "block", "head")]
    tied = base.model_copy(update={"workload": workload(chain, 4, 10**6, True)})
    costs = template_costs(tied, STRATEGY, template)
    assert costs.send_ns.tolist() == costs.send_back_ns.tolist() == [send_ns]
    assert costs.embedding_ns == embedding_ns
