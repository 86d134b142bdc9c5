"""Templates in words: stages node by node, blocks that are recomputed, sizes and their proof."""

from formulations.plan import Degrees, Group, Recomputed, Stage
from formulations.template import Template
from solver.cli.template_text import recomputed_text, stages_text, templates_text
from solver.fleets.designs import generator_for
from solver.fleets.template_document import templates_document
from solver.templates.generate import TemplateOptions
from tests.command_line import printed
from tests.random_fleets import fleet_instance


def stage(layers: tuple[int, int], node: int, gpus: tuple[int, ...], blocks: int = 0) -> Stage:
    """On GPUs of a node that share it."""
    return Stage(
        layers=layers,
        group=Group(node=node, gpus=gpus),
        degrees=Degrees(tp=len(gpus)),
        recomputed=Recomputed(way="full" if blocks else "none", blocks=blocks),
    )


def test_stages_node_by_node() -> None:
    """Equal neighbours on one node are counted; nodes are apart."""
    stages = (
        stage((0, 4), 0, (0,)),
        stage((4, 8), 0, (1,), blocks=2),
        stage((8, 17), 1, (0, 1), blocks=3),
    )
    template = Template.model_construct(stages=stages, node_groups=(0, 0))
    assert stages_text(template) == "2*(4x1) | 9x2"
    assert recomputed_text(template) == "full 5"
    assert recomputed_text(Template.model_construct(stages=stages[:1], node_groups=(0,))) == "none"


def test_report_of_templates() -> None:
    """Seven nodes and one failure: the sizes, a row for each template, what a failure takes."""
    document = templates_document(generator_for(fleet_instance(7), TemplateOptions(), 1), 1)
    text = printed(*templates_text(document))
    words = " ".join(text.split())
    assert "faults 1: at least 2 pipelines" in words
    assert f"least n0 = {document.least_nodes}: the fewest nodes that hold the model" in words
    assert f"micro-batch {document.micro_batch} sequence" in words
    rows = [line for line in text.splitlines() if " | " in line or "x1" in line]
    assert len(rows) >= sum(entry.template is not None for entry in document.templates)
    low, high = document.rebuilt_nodes or (0, 0)
    assert f"merging of {low} to {high} nodes a failure takes at most" in words
