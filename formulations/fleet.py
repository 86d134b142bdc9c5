"""Pipeline templates, replicas on nodes that have no names yet, and the pipelines made of them.

Jang et al. (Oobleck, SOSP 2023), section 4.1: a template fixes nodes, stages, the layers of every
stage and its GPUs; plans are put together from templates, and a failure swaps one for another.
Stages are those of plans; the node of a stage's group is a position in the template. No stage spans
nodes, and the GPUs of a stage are one tensor-parallel group.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, groupby, pairwise

from pydantic import Field, model_validator

from formulations.instance.record import Count, Index, Record
from formulations.instance.search import PlainSchedule
from formulations.instance.workload import Recompute
from formulations.plan import Degrees, Group, Recomputed, Stage

#: Of stages that keep everything.
NOTHING = Recomputed(way="none", blocks=0)


def stage_on(
    layers: tuple[int, int], node: int, first_gpu: int, gpus: int, recomputed: Recomputed = NOTHING
) -> Stage:
    """A stage on GPUs [first_gpu, first_gpu + gpus) of the node at a position."""
    group = Group(node=node, gpus=tuple(range(first_gpu, first_gpu + gpus)))
    return Stage(layers=layers, group=group, degrees=Degrees(tp=gpus), recomputed=recomputed)


class Template(Record):
    """Nodes in pipeline order, by node group of the cluster, and the stages that run on them."""

    node_groups: tuple[Index, ...] = Field(min_length=1)
    stages: tuple[Stage, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> "Template":
        if fault := _fault(self):
            raise ValueError(fault)
        return self

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.node_groups)

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.stages)

    def group_of(self, stage: Stage) -> int:
        """Node group of the cluster that a stage runs on."""
        return self.node_groups[stage.group.node]

    @property
    def num_layers(self) -> int:
        """Number of layers of the chain."""
        return self.stages[-1].layers[1]

    def counts(self, num_groups: int) -> tuple[int, ...]:
        """Nodes of each of the cluster's `num_groups` node groups."""
        return tuple(self.node_groups.count(j) for j in range(num_groups))


def _fault(template: Template) -> str | None:
    """What is wrong with a template, in one sentence."""
    starts = [0, *(stage.layers[1] for stage in template.stages)]
    for k, (stage, start) in enumerate(zip(template.stages, starts, strict=False)):
        if stage.layers[0] != start or stage.layers[1] <= start:
            layers = f"layers [{stage.layers[0]}, {stage.layers[1]})"
            return f"stages[{k}] has {layers}; it must start with layer {start} and have one"
        gpus, degrees = stage.group.gpus, stage.degrees
        if not gpus or list(gpus) != [*range(gpus[0], gpus[0] + len(gpus))]:
            return f"stages[{k}] has GPUs {gpus}; they must be one or more in a row"
        if degrees != Degrees(tp=len(gpus)):
            parts = f"{degrees.parts} parts of {degrees.tp} on {len(gpus)} GPUs"
            return f"stages[{k}] has {parts}; they must be one tensor-parallel group"
    positions = dict.fromkeys(stage.group.node for stage in template.stages)
    if list(positions) != [*range(template.num_nodes)]:
        return f"stages must visit the nodes 0 to {template.num_nodes - 1} once each, in order"
    for k, (before, stage) in enumerate(pairwise(template.stages), start=1):
        group, last = stage.group, before.group
        if group.node == last.node and group.gpus[0] <= last.gpus[-1]:
            return f"stages[{k}] shares GPU {group.gpus[0]} of node {group.node}"
        if group.node < last.node:
            return f"stages[{k}] goes back to node {group.node}"
    return None


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
    by_node = (list(run) for _, run in groupby(template.stages, lambda stage: stage.group.node))
    return tuple(range(run[0].layers[0], run[-1].layers[1]) for run in by_node)


def holdings(pipelines: Iterable[Pipeline]) -> dict[int, range]:
    """Layers on every node of the pipelines."""
    pairs = (zip(p.nodes, layers_by_position(p.template), strict=True) for p in pipelines)
    return dict(chain.from_iterable(pairs))
