"""What models and search read of one configuration."""

import numpy as np

from tests.oracles.agreement import pages_suffice
from tests.oracles.cases import drawn
from tests.random_configs import extreme_tables, random_tables
from tests.recorded import Cases, recorded, summary

test_pages_suffice = pages_suffice(9, 13, 14)


@recorded("tables")
def test_tables_are_the_recorded_ones() -> Cases:
    tables = {f"drawn {name}": tables for name, *_, tables in drawn(5, 9, 11, 13, 14)}
    tables |= {f"zb-h1 {n}": random_tables(n, n % 2 > 0, "zb-h1") for n in range(4)}
    tables |= {f"extreme {n}": extreme_tables(n) for n in range(1, 9)}
    for name, t in tables.items():
        blocks = t.num_blocks(np.arange(t.num_layers), np.arange(t.num_layers) + 1)
        sizes = t.send_bytes, t.embedding_bytes, t.tied, t.tensors, t.num_micro_batches, t.roomiest
        least_forward_ns = int(t.forward_ns[:, t.config.groups_used].min(axis=1).sum())
        least = least_forward_ns, t.least_work_ns, t.longest_ns, t.min_blocks, t.slots_per_node
        forward, backward, *weight = t.passes
        longest = forward, backward + np.max(t.recompute_ns, axis=0), *weight
        arrays = *longest, *t.passes, t.optimizer_ns, t.parameter_bytes, t.capacity_bytes
        yield name, summary([sizes, least, arrays, t.expert_rings_ns(1), blocks])
        assert t.plan_config == (t.by_place.config if t.by_place else t.config)
        assert (blocks == t.is_block).all()
