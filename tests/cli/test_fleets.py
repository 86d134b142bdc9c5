"""The commands `templates`, `recover` and `replay`."""

from pathlib import Path

import pytest

from tests.command_line import run
from tests.conftest import ROOT
from tests.docs_pages import shown_and_printed


def test_consoles_of_fleets() -> None:
    shown, printed = shown_and_printed("fleets")
    assert printed == shown


def test_consoles_of_replays() -> None:
    shown, printed = shown_and_printed("replay")
    assert printed == shown


def test_no_template_in_time_writes_no_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "solver.fleets.template_document.TemplatesDocument.designs", property(lambda _: ())
    )
    fleet = tmp_path / "fleet.json"
    _, _, err = run("templates", ROOT / "instances" / "homo_small.yaml", "--out", fleet)
    assert err == "no fleet is written: no template was found in time; raise --time-limit\n"
    assert not fleet.exists()
