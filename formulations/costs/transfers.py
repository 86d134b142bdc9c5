"""One message, or the lanes of a tied matrix, over one link; alike for all node orders."""

from formulations.costs.collectives import ALL_REDUCE, ring_latency_s
from formulations.costs.lanes import message_lanes
from formulations.costs.tables import CostTables
from formulations.instance import Link
from formulations.units import ceil_ns


def _inside_s(tables: CostTables, j: int, tensors: int) -> float:
    link = tables.instance.cluster.groups[j].intra_node
    return tensors * tables.send_bytes[j] / link.bandwidth_bytes_per_s + link.latency_s


def inside_ns(tables: CostTables, j: int, tensors: int) -> int:
    """One message between two slots of a node of group j."""
    return ceil_ns(_inside_s(tables, j, tensors))


def outside_ns(
    tables: CostTables, j: int, flows: int, link: Link, tensors: int, widest: int | None = None
) -> int:
    """One message from or to a node of group j, with `flows` replicas sharing the link.

    With scatter and gather the parts are gathered over the links inside the node. widest: GPUs of
    the largest tensor group; of the shape if not given.
    """
    degrees, size = tables.shape.degrees[j], tensors * tables.send_bytes[j]
    widest = tables.shape.widest_tp if widest is None else widest
    lanes = message_lanes(tables.instance, degrees, widest)
    outside_s = lanes * size * flows / link.bandwidth_bytes_per_s + link.latency_s
    gathers = tables.instance.search.gathers_messages and degrees.tp > 1
    return ceil_ns(
        outside_s + (_inside_s(tables, j, tensors) * (degrees.tp - 1) if gathers else 0.0)
    )


def embedding_ns(tables: CostTables, j: int, lanes: int, link: Link) -> int:
    """All-reduce of the tied matrix by GPUs of group j, `lanes` of which share the link."""
    if not tables.tied:
        return 0
    latency_s = ring_latency_s(ALL_REDUCE, 2, link.latency_s)
    return ceil_ns(lanes * tables.embedding_bytes[j] / link.bandwidth_bytes_per_s + latency_s)
