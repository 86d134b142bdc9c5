"""Memory of a GPU at its fullest moment, by hand."""

import numpy as np
import pytest

from formulations.costs.memory import layer_memory
from formulations.errors import InstanceError
from formulations.instance.workload import LayerRun
from formulations.plan import Recomputed
from formulations.schedules.registry import Held
from tests.equal_nodes import equal_nodes
from tests.export_cases import job_of
from tests.oracles.agreement import check_memory, pages_suffice
from tests.small_instances import layer, layers_of

test_pages_suffice = pages_suffice(1, 7, 13, 29, 46, 52, check=check_memory)

#: Three layers: static bytes, of a micro-batch in flight, and once while one is worked on.
MEMORY = layers_of(np.array([100, 200, 400]), np.array([10, 20, 40]), np.array([3, 5, 4]), fixed=7)
NOTHING = Recomputed(way="none", blocks=0)


@pytest.mark.parametrize(
    ("in_flight", "put_off", "kept"),
    [
        ([[3]], [0], 3 * 30),
        # either three in flight, or one and two that wait for their weight gradients
        ([[3], [1]], [0, 1], 3 * 30),
        ([[3], [1]], [0, 3], 30 + 3 * 30),
    ],
)
def test_fullest_moment_counts(in_flight: list[list[int]], put_off: list[int], kept: int) -> None:
    """Layers 0 and 1 keep 30 bytes of each micro-batch, whatever they wait for."""
    moments = Held(whole=np.array(in_flight), put_off=np.array(put_off))
    parts = MEMORY.parts([(0, 2)], moments, np.array([False, True, True]), [NOTHING])
    assert parts.weights_bytes == 300
    assert parts.activations_bytes == kept + 5
    assert parts.buffers_bytes == 7


def test_chunks_share_one_moment() -> None:
    """Two of the first chunk and one of the second, or one and two: 2 x 10 + 40, or 10 + 2 x 40."""
    moments = Held(whole=np.array([[2, 1], [1, 2]]), put_off=np.array([0, 0]))
    parts = MEMORY.parts([(0, 1), (2, 3)], moments, np.array([False, True, True]), [NOTHING] * 2)
    assert parts.weights_bytes == 500
    assert parts.activations_bytes == 90 + 4


def test_equal_layers_count_each_in_what_a_step_may_keep() -> None:
    """2048 of 1 PiB, of each of four sequences, are more than 1024 PiB."""
    tables = equal_nodes(1, 1, 1, 1, 1)
    block = layer("block", 1, 0, 1 << 50)
    runs = LayerRun(layer=block, count=2047), LayerRun(layer=block, count=1)
    with pytest.raises(InstanceError, match="PiB for one replica"):
        layer_memory(tables.instance.but(workload={"layer_runs": runs}), tables.config)


@pytest.mark.parametrize("fused", [True, False])
def test_logits_and_gradients_on_their_way(fused: bool) -> None:
    """GPT-2 without replicas: 2 bytes per parameter of a block, at the head also of its matrix.

    Logits of two sequences of 1024 tokens and 50257 rows, kept in 16 or 32 bit; unless fused,
    their gradient is beside them. A block has 12 x 768^2 + 13 x 768 parameters.
    """
    workload = f"catalogue: gpt2, fused_cross_entropy: {fused}".lower()
    job = job_of(workload=workload, order=(0, 1, 1), dp=1, shares=(8,))
    memory, logits = layer_memory(job.instance, job.config)[0], 2 * 1024 * 50257
    kept, workspace = memory.kept[0].activation_bytes, memory.kept[0].workspace_bytes
    block = 2 * (12 * 768**2 + 13 * 768)
    assert workspace[:-1].tolist() == [0] + 12 * [block]
    matrix = 2 * 50304 * 768  # padded to a multiple of 128 rows
    assert workspace[-1] == block + matrix + (0 if fused else 2 * logits)
    norm_and_input = 2 * 2 * 2 * 1024 * 768
    assert kept[-1] == norm_and_input + (2 if fused else 4) * logits
