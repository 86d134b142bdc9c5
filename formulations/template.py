"""A pipeline template: one pipeline on so many nodes, before it is given machines.

Jang et al. (Oobleck, SOSP 2023), section 4.1: a template fixes nodes, stages, the layers of every
stage and its GPUs; plans are put together from templates, and a failure swaps one for another.
No stage spans nodes.
"""

from itertools import pairwise

from pydantic import Field, ValidationError, model_validator

from formulations.errors import PlanError
from formulations.instance.extent import GpusPerNode, Index
from formulations.instance.json_document import parse_json
from formulations.instance.record import Record


class TemplateStage(Record):
    """Layers [start, end) of the chain on some GPUs of one node.

    node: position in the template's nodes. first_gpu, gpus: the GPUs [first_gpu, first_gpu + gpus)
    of that node, which work as one tensor-parallel group.
    """

    layers: tuple[Index, Index]
    node: Index
    first_gpu: Index
    gpus: GpusPerNode


class Template(Record):
    """Nodes in pipeline order, by node group of the cluster, and the stages that run on them."""

    node_groups: tuple[Index, ...] = Field(min_length=1)
    stages: tuple[TemplateStage, ...] = Field(min_length=1)

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

    @property
    def num_layers(self) -> int:
        """Number of layers of the chain."""
        return self.stages[-1].layers[1]

    def counts(self, num_groups: int) -> tuple[int, ...]:
        """Nodes of each of the cluster's `num_groups` node groups."""
        return tuple(self.node_groups.count(j) for j in range(num_groups))

    def idle_gpus(self, gpus_per_node: tuple[int, ...]) -> int:
        """GPUs of the template's nodes that no stage uses; `gpus_per_node`: per node group."""
        used = sum(stage.gpus for stage in self.stages)
        return sum(gpus_per_node[j] for j in self.node_groups) - used


def _fault(template: Template) -> str | None:
    """What is wrong with a template, in one sentence."""
    starts = [0, *(stage.layers[1] for stage in template.stages)]
    for k, (stage, start) in enumerate(zip(template.stages, starts, strict=False)):
        if stage.layers[0] != start or stage.layers[1] <= start:
            found = f"layers [{stage.layers[0]}, {stage.layers[1]})"
            return f"stages[{k}] has {found}; it must start with layer {start} and have one"
    if list(dict.fromkeys(stage.node for stage in template.stages)) != [*range(template.num_nodes)]:
        return f"stages must visit the nodes 0 to {template.num_nodes - 1} once each, in order"
    for k, (before, stage) in enumerate(pairwise(template.stages), start=1):
        if stage.node == before.node and stage.first_gpu < before.first_gpu + before.gpus:
            return f"stages[{k}] shares GPU {stage.first_gpu} of node {stage.node}"
        if stage.node < before.node:
            return f"stages[{k}] goes back to node {stage.node}"
    return None


def template_from_json(text: str, name: str) -> Template:
    """The template in JSON text, as `model_dump_json` writes it; `name` stands for the file.

    Raises PlanError, one line.
    """
    parse_json(text, name)
    try:
        return Template.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in (name, *first["loc"]))
        raise PlanError(where, first["msg"], "a template as written by templates --json") from None
