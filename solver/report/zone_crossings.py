"""What of a plan crosses between zones, and over which links."""

from collections.abc import Iterator
from itertools import pairwise

from formulations.costs.zones import neighbours
from formulations.instance import Cluster
from formulations.instance.sources import NOT_STATED
from solver.document import PlanDocument
from solver.report.layout import Lines
from solver.report.quantities import ranges, significant, time_text
from solver.report.stages import num_chunks

Pair = tuple[int, int]  #: two zones, by number


def zone_lines(document: PlanDocument) -> Lines:
    """One line per pair of zones that anything crosses between; empty without zones."""
    cluster, shape = document.instance.cluster, document.shape
    if not cluster.has_zones or shape is None:
        return []
    crossings: dict[Pair, dict[str, set[int]]] = {}
    for pair, what, stage in _crossings(document):
        crossings.setdefault(pair, {}).setdefault(what, set()).add(stage)
    lines = [_line(cluster, pair, what) for pair, what in sorted(crossings.items())]
    return [("" if i else "zones", line) for i, line in enumerate(lines or ["nothing crosses"])]


def _crossings(document: PlanDocument) -> Iterator[tuple[Pair, str, int]]:
    """Pairs of zones, what crosses there, and of which stage of GPUs."""
    cluster = document.instance.cluster
    zones = dict(zip(cluster.node_names, cluster.node_groups, strict=True))
    pp = len(document.replicas[0].stages) // num_chunks(document)
    for replica in document.replicas:
        where = [cluster.zone_of_group[zones[stage.node]] for stage in replica.stages]
        for s, ends in enumerate(pairwise(where)):
            if ends[0] != ends[1]:
                yield (min(ends), max(ends)), "activations after", s % pp
    for k in range(pp):
        nodes = [replica.stages[k].node for replica in document.replicas]
        for pair in neighbours([cluster.zone_of_group[zones[node]] for node in nodes]):
            yield pair, "gradients of", k


def _line(cluster: Cluster, pair: Pair, crossing: dict[str, set[int]]) -> str:
    names = [cluster.zones[zone] for zone in pair]
    link = cluster.link_between(*names)
    what = ", ".join(
        f"{name} stage{'s' * (len(stages) > 1)} {ranges(sorted(stages))}"
        for name, stages in crossing.items()
    )
    speed = f"{significant(link.bandwidth_bytes_per_s * 8 / 1e9)} Gbit/s"
    source = f"by {link.source}" if link.source == NOT_STATED else f"({link.source})"
    figures = f"{speed}, {time_text(link.latency_s)}, {link.kind} {source}"
    return f"{names[0]} to {names[1]}: {what}; {figures}"
