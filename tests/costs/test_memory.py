"""Memory of a GPU at its fullest moment."""

import numpy as np
import pytest

from formulations.costs.memory import HeldBytes, capacity_bytes, layer_memory
from formulations.costs.plan_costs import plan_costs
from formulations.errors import InstanceError
from formulations.instance.workload import LayerRun
from formulations.schedules.registry import held
from tests.chain_instances import equal_nodes
from tests.oracles.agreement import check_memory, pages_suffice
from tests.oracles.cases import drawn
from tests.recorded import Cases, recorded, summary
from tests.small_instances import layer

test_pages_suffice = pages_suffice(1, 7, 13, 29, 46, 52, 361, check=check_memory)


@recorded("memory")
def test_bytes_are_the_recorded_ones() -> Cases:
    """By layer of the first group and by kind; of each GPU at its fullest moment."""
    for name, instance, plan, tables in drawn(1, 7, 13, 29, 46, 52):
        memory, sums = tables.memory[0], HeldBytes(tables.memory[0])
        ways = [[*map(summary, kept[1:])] for kept in memory.kept]
        layers = [memory.parameters, memory.experts, memory.static_bytes, memory.put_off_bytes]
        layers += [*sums.largest, capacity_bytes(instance)]
        moments = held("zb-h1", 3, 2, 4)
        bounds = np.array([[0, 1]]), np.array([[2, tables.num_layers]])
        need = [sums.need(way, moments, *bounds).tolist() for way in range(len(memory.kept))]
        gpus = plan_costs(instance, plan).memory
        fixed = [memory.fixed_bytes, summary(layers), need]
        yield name, [*fixed, ways, gpus[:, 0, 0].tolist(), gpus[:, -1, -1].tolist()]


def test_equal_layers_count_each_in_what_a_step_may_keep() -> None:
    """2048 of 1 PiB, of each of four sequences, are more than 1024 PiB."""
    tables = equal_nodes(1, 1, 1, 1)
    block = layer("block", 1, 0, 1 << 50)
    runs = LayerRun(layer=block, count=2047), LayerRun(layer=block, count=1)
    with pytest.raises(InstanceError, match="PiB for one replica"):
        layer_memory(tables.instance.but(workload={"layer_runs": runs}), tables.config)
