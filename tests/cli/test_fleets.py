"""The commands `templates`, `recover` and `replay`."""

from pathlib import Path

import pytest

from formulations.fleet import Template
from formulations.plan import Degrees, Group, Recomputed, Stage
from solver.cli.fleets import recomputed_text, stages_text
from tests.command_line import run
from tests.conftest import ROOT
from tests.docs_pages import shown_and_printed


def test_consoles_of_fleets() -> None:
    """Templates of several clusters, a fleet and what is left of it, and what is refused."""
    shown, printed = shown_and_printed("fleets")
    assert printed == shown


def test_consoles_of_replays() -> None:
    """Two policies side by side, as data, and what is refused."""
    shown, printed = shown_and_printed("replay")
    assert printed == shown


def test_no_template_in_time_writes_no_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line says why there is no file."""
    monkeypatch.setattr(
        "solver.fleets.template_document.TemplatesDocument.designs", property(lambda _: ())
    )
    fleet = tmp_path / "fleet.json"
    _, _, err = run("templates", ROOT / "instances" / "homo_small.yaml", "--out", fleet)
    assert err == "no fleet is written: no template was found in time; raise --time-limit\n"
    assert not fleet.exists()


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
