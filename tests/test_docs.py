"""The documentation: what its pages show is what happens today, and the site can be built."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from formulations.instance.load import load_instance
from formulations.instance.schema import InstanceFile
from solver.document import PLAN_FILE, PlanDocument, StageDocument
from solver.fleet_document import FLEET_FILE, FleetDocument
from solver.front_document import FrontDocument
from solver.switch_document import (
    ChannelDocument,
    DeviceDocument,
    SendingDocument,
    SliceDocument,
    SwitchDocument,
)
from tests.docs_pages import DOCS, pages, replayed, stable


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_consoles_print_what_pages_show(page: Path) -> None:
    """Every line but those that tell times; `python -m tests.docs_pages` writes them anew."""
    assert stable(page.read_text("utf-8")) == stable(replayed(page))


def test_examples_are_shown() -> None:
    """Every instance of the examples loads, and a page runs it."""
    shown = "".join(page.read_text("utf-8") for page in pages())
    for path in (DOCS / "examples").glob("*.yaml"):
        load_instance(path)
        assert path.stem in shown


def test_formats_are_documented_whole() -> None:
    """The page names every section of an instance and every field of a plan and of a fleet."""
    text = (DOCS / "formats.md").read_text("utf-8")
    named = set(re.findall(r"`(\w+)`", text))
    plans = PlanDocument, StageDocument, FleetDocument, FrontDocument
    switches = SwitchDocument, SliceDocument, SendingDocument, DeviceDocument, ChannelDocument
    for document in (InstanceFile, *plans, *switches):
        assert set(document.model_fields) <= named, document.__name__
    assert f"schema {PLAN_FILE.version}" in text
    assert f"schema {FLEET_FILE.version}" in text


def test_pages_name_no_machine() -> None:
    """No path of a checkout and no address of a registry stands in a page."""
    for page in DOCS.rglob("*.md"):
        assert not re.search(r"/(work|home|tmp|root)/|pypi|127\.0\.0\.1", page.read_text("utf-8"))


def test_site_builds_strictly(tmp_path: Path) -> None:
    """No broken link and no page that is left out; needs the extra `docs`."""
    pytest.importorskip("material", reason="the extra docs is not installed")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    done = subprocess.run(
        [*build, str(tmp_path)], cwd=DOCS.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
