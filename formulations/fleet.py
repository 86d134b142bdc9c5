"""The pipelines that train together, each a template on nodes of its own."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from pydantic import Field

from formulations.instance.record import Count, Record
from formulations.instance.search import PlainSchedule
from formulations.instance.workload import Recompute
from formulations.template import Template


class Strategy(Record):
    """How the stages of a template run."""

    micro_batch: Count  #: sequences
    #: What a stage may choose among, least time first, see `formulations.costs.stage_costs`.
    recompute: tuple[Recompute, ...] = Field(min_length=1, max_length=3)
    schedule: PlainSchedule


class Design(Record):
    """A template and how it runs; all designs of a fleet have one micro-batch size."""

    template: Template
    strategy: Strategy


@dataclass(frozen=True)
class Pipeline:
    """A template on nodes: indices into `Cluster.node_names`, by the template's positions."""

    template: Template
    nodes: tuple[int, ...]
    micro_batches: int


def layers_by_position(template: Template) -> tuple[range, ...]:
    """Layers that each of the template's nodes holds."""
    starts = [template.num_layers] * template.num_nodes
    ends = [0] * template.num_nodes
    for stage in template.stages:
        node = stage.group.node
        starts[node] = min(starts[node], stage.layers[0])
        ends[node] = max(ends[node], stage.layers[1])
    return tuple(map(range, starts, ends))


def holdings(pipelines: Iterable[Pipeline]) -> dict[int, range]:
    """Layers on every node of the pipelines."""
    pairs = (zip(p.nodes, layers_by_position(p.template), strict=True) for p in pipelines)
    return dict(chain.from_iterable(pairs))
