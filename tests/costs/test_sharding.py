"""What ZeRO 2 and 3 exchange with every micro-batch, rings of experts, and lanes."""

import numpy as np

from formulations.costs import sharding
from formulations.costs.compute import TimeColumns
from formulations.costs.experts import members_of
from formulations.plan import Degrees
from formulations.space import configs
from tests.chain_instances import equal_nodes
from tests.oracles.agreement import pages_suffice
from tests.oracles.cases import drawn
from tests.random_configs import zoned
from tests.recorded import Cases, recorded, summary
from tests.small_instances import expert_instance, plain_config

test_pages_suffice = pages_suffice(1, 3, 7, 44, 305, 361, 394, 415)


@recorded("sharding")
def test_exchanges_are_the_recorded_ones() -> Cases:
    """What passes take longer for them, rings of experts, and layers alike in their bytes."""
    for name, instance, plan, tables in drawn(1, 3, 7, 13, 24, 33, 44, 54):
        if not plan.config.per_stage:
            config, columns = plan.config, TimeColumns(instance)
            at = (
                config.degrees,
                config.micro_batch,
                config.recompute[0],
                members_of(instance, config),
            )
            alone, times = columns.times(*at), sharding.config_times(instance, config)[0]
            passes = ("forward_ns", "backward_ns", "weight_ns")
            more = [getattr(times, each) - getattr(alone, each) for each in passes]
            masks = sharding.layers_alike(config, tables.gradient_bytes)
            yield name, summary([more, tables.expert_rings_ns(2), len(masks), masks[0]])
    for seed in range(0, 24, 2):  # unlike nodes, in zones or not
        instance = expert_instance(seed)
        instance = zoned(instance, seed) if seed % 4 else instance
        shared = [config for config in configs(instance) if config.ep > 1]
        for n, config in enumerate(shared[:: 1 + len(shared) // 3]):
            sizes = np.full((1, len(config.degrees)), 10**6)
            rings = sharding.expert_rings_ns(instance, config, 1, sizes)
            yield f"experts {seed}.{n}", [int(rings[0]), config.ep, config.pp]
    # stages of 10 ranks that straddle nodes of 6; a layer without experts
    straddling = plain_config((5,), dp=10, pp=3, ep=2)
    sizes = np.array([[1_000_000], [0]], dtype=np.int64)
    rings = sharding.expert_rings_ns(equal_nodes(5, 6, 1, 1).instance, straddling, 2, sizes)
    yield "straddling", rings.tolist()
    # two shard groups of four replicas reduce their shards among themselves, of parameters nothing
    instance = equal_nodes(4, 2, 8, 1).instance
    for groups in (1, 2):
        grouped = plain_config((4,), dp=8, zero=3, optimizer_instances=groups)
        members = members_of(instance, grouped)
        plain = TimeColumns(instance).times(grouped.degrees, 1, "none", members)
        times, names = sharding.config_times(instance, grouped)[0], ("forward_ns", "backward_ns")
        more = [getattr(times, name) - getattr(plain, name) for name in names]
        yield f"{groups} shard groups", summary(more)
    # tensor groups of 2 in three parts, of 1, of 2, and of 4 on nodes that are not used
    degrees = (Degrees(tp=2, parts=3), Degrees(tp=1), Degrees(tp=2), Degrees(tp=4))
    unlike = plain_config((1, 1, 1, 0)).but(degrees=degrees)
    assert [sharding.lanes_like(unlike, j) for j in range(4)] == [0, 1, 0, 3]
    assert [sharding.tied_lanes(unlike, j) for j in range(4)] == [6, 1, 2, 4]
    sizes = np.array([[4, 8, 4, 9], [2, 4, 2, 9], [4, 8, 4, 9]])
    whole = [instance.but(search={"scatter_gather": split}) for split in (True, False)]
    lanes = [sharding.message_lanes(each, degrees[0], 4) for each in whole]
    alike = [mask.tolist() for mask in sharding.layers_alike(unlike, sizes)]
    yield "lanes", [sharding.widest_group(unlike), lanes, alike]
