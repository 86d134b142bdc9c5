"""What the exchange of gradients between pipelines takes: one ring per layer, all at once.

Every layer is held once in each of x pipelines, which all-reduce its gradient. A node sends and
receives for all its layers over one link. Rings begin when the slowest pipeline is done, which is
the latest that they can, but for the share that `search.overlap` hides behind the backward passes
of pipelines of one stage; where the cluster has zones, all gradients are taken to cross between
them, over the slowest link.
"""

from formulations.costs.collectives import ALL_REDUCE, ring_latency_s, ring_share
from formulations.costs.template_costs import stage_tables
from formulations.fleet import Design
from formulations.instance import Instance
from formulations.units import ceil_ns


def exchange_times_ns(instance: Instance, design: Design, most: int) -> tuple[int, ...]:
    """Time on the slowest node of a design, with 1, 2, .. `most` pipelines of any design."""
    cluster, template = instance.cluster, design.template
    tables = {
        gpus: stage_tables(instance, design.strategy, gpus, template.num_stages)
        for gpus in {stage.degrees.tp for stage in template.stages}
    }
    node_bytes = [0] * template.num_nodes
    for stage in template.stages:
        gpus, group = stage.degrees.tp, template.group_of(stage)
        lane_bytes = int(tables[gpus].gradient_bytes[slice(*stage.layers), group].sum())
        node_bytes[stage.group.node] += gpus * lane_bytes
    links = [cluster.groups[j].inter_node for j in template.node_groups]
    loads = [
        size / link.bandwidth_bytes_per_s for size, link in zip(node_bytes, links, strict=True)
    ]
    latency_s = max(link.latency_s for link in links)
    if between := cluster.links_among(range(len(cluster.groups))):
        loads.append(sum(node_bytes) / min(link.bandwidth_bytes_per_s for link in between))
        latency_s += max(link.latency_s for link in between)
    factor = ALL_REDUCE * (1 - instance.search.overlap.hidden_sync(template.num_stages, 1))
    return tuple(
        ceil_ns(ring_share(factor, x) * max(loads) / cluster.efficiency(x))
        + ceil_ns(ring_latency_s(factor, x, latency_s))
        for x in range(1, most + 1)
    )
