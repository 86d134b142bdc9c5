"""The page of a plan, and the trace beside it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from formulations.instance.load import load_instance
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document, costs_of
from solver.report.html.page import html_page
from solver.report.quantities import time_text
from solver.search.driver import solve
from solver.simulate import simulate_step
from tests.conftest import ROOT, present, text_of
from tests.report.shown import check_stored, stored

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def long() -> PlanDocument:
    """A plan with 1,024 and more micro-batches on four nodes of two types."""
    instance = load_instance(ROOT / "instances" / "hetero_small.yaml")
    workload = instance.workload.but(global_batch=8192)
    search = {"micro_batch": (4,), "data_parallel": (2,)}
    options = SolveOptions("minmax")
    return build_document(solve(instance.but(workload=workload, search=search), options), options)


test_page_is_as_stored = check_stored("page")


def test_page_needs_nothing_else() -> None:
    """No address, no other file; figures, layers and stages stand on it without its script."""
    assert not re.search(r"https?://|\ssrc=|@import|url\(", stored("page"))


def test_page_of_many_micro_batches_stays_small(long: PlanDocument) -> None:
    """The steady state is left out, and said so."""
    page = html_page(long, simulate_step(costs_of(long)))
    assert len(page.encode()) < 1_000_000
    data = json.loads(page.partition("id=data>")[2].partition("</script>")[0])
    assert data["hidden"] > 0
    assert sum(len(row["bars"]) for row in data["rows"]) <= 8000


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium to look at the page with")
@pytest.mark.parametrize("name", ["document", "long"])
def test_page_runs_in_a_browser(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The script draws the step and writes its legend, without a word on the console.

    Looking closer shows passes of the step, not the gap of what is left out.
    """
    document: PlanDocument = request.getfixturevalue(name)
    page = tmp_path / "report.html"
    text = html_page(document, simulate_step(costs_of(document)))
    page.write_text(text + CLOSER, encoding="utf-8")
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [str(CHROMIUM), *flags, profile, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    canvas = present(re.search(r'<canvas id="step"[^>]*height="(\d+)"', done.stdout))
    assert int(canvas[1]) > 90
    assert "critical path: what the step has to wait for" in done.stdout.rpartition("<script")[0]
    assert time_text(document.step_time_s or 0) in done.stdout
    told = present(re.search(r'<p id="what">([^<]*)', done.stdout))
    assert told[1].startswith(("forward ", "backward "))


#: Presses + and points at the middle of the first row.
CLOSER = text_of("closer.txt")
