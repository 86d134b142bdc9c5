"""What `show --study` says of studies; of clusters see tests/data/consoles/clusters.md."""

from pathlib import Path

from tests.command_line import output, run
from tests.conftest import ROOT
from tests.recorded import as_recorded, digest

SMALL = ROOT / "instances" / "hetero_small.yaml"


def test_shown_studies_are_the_recorded_ones(tmp_path: Path) -> None:
    """Of templates alone; of a search without time, then of one that ended; as text and as data."""
    path, figures = tmp_path / "study.db", dict[str, object]()
    commands = {
        "templates": ("templates", SMALL, "--micro-batch", 4),
        "late": ("solve", SMALL, "--time-limit", 1e-6, "--workers", 1),
        "solved": ("solve", SMALL, "--workers", 1),
    }
    for name, command in commands.items():
        run(*command, "--study", path)
        lines = output("show", "--study", path).splitlines()
        figures[name] = [line.rstrip() for line in lines if not line.startswith("spent ")]
        data = output("show", "--study", path, "--json").splitlines()
        figures[f"{name} as data"] = digest([line for line in data if '"spent_s"' not in line])
    as_recorded("shown_studies", figures)
