"""The commands `templates`, `recover` and `replay`."""

from pathlib import Path

import pytest

from tests.command_line import run
from tests.conftest import ROOT
from tests.docs_pages import check_consoles

test_consoles_of_fleets = check_consoles("fleets")


test_consoles_of_replay = check_consoles("replay")


def test_no_template_in_time_writes_no_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solver.fleets.designs.TemplatesDocument.designs", property(lambda _: ()))
    fleet = tmp_path / "fleet.json"
    _, _, err = run("templates", ROOT / "instances" / "homo_small.yaml", "--out", fleet)
    assert err == "no fleet is written: no template was found in time; raise --time-limit\n"
    assert not fleet.exists()
