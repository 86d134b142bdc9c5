"""Templates in words: stages node by node; for the whole report see tests/data/consoles."""

from formulations.plan import Degrees, Group, Recomputed, Stage
from formulations.template import Template
from solver.cli.template_text import recomputed_text, stages_text


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
