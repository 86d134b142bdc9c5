"""The page of a plan, and the trace beside it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_instance
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document, costs_of
from solver.report.html.page import html_page
from solver.report.naming import layers_text
from solver.report.quantities import size_text, time_text
from solver.search.driver import solve
from solver.simulate import simulate_step
from tests.command_line import run

INSTANCES = Path("instances")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def planned(instance: Instance) -> PlanDocument:
    """A plan of the fast heuristic."""
    options = SolveOptions("minmax")
    return build_document(solve(instance, options), options)


@pytest.fixture(scope="module")
def small() -> PlanDocument:
    """A plan on four nodes of two types."""
    return planned(load_instance(INSTANCES / "hetero_small.yaml"))


@pytest.fixture(scope="module")
def long() -> PlanDocument:
    """The same model with 1,024 and more micro-batches."""
    instance = load_instance(INSTANCES / "hetero_small.yaml")
    workload = instance.workload.but(global_batch=8192)
    return planned(
        instance.but(workload=workload, search={"micro_batch": (4,), "data_parallel": (2,)})
    )


def test_page_needs_nothing_else(small: PlanDocument) -> None:
    """No address, no other file; the figures of the plan stand on it."""
    page = html_page(small, simulate_step(costs_of(small)))
    assert not re.search(r"https?://|\ssrc=|@import|url\(", page)
    assert time_text(small.step_time_s or 0) in page
    for stage in small.replicas[0].stages:
        assert (
            size_text(stage.memory_bytes, small.replicas[0].stages[-1].memory_limit_bytes) in page
        )


def test_page_of_many_micro_batches_stays_small(long: PlanDocument) -> None:
    """The steady state is left out, and said so."""
    step = simulate_step(costs_of(long))
    assert long.replicas[0].micro_batches >= 1024
    page = html_page(long, step)
    assert len(page.encode()) < 1_000_000
    data = json.loads(page.partition("id=data>")[2].partition("</script>")[0])
    assert data["hidden"] > 0
    # 128 bars of the steady state and 4 for each of the stages can be told apart on a screen
    readable = 128 + 4 * len(long.replicas[0].stages) + 2
    assert sum(len(row["bars"]) for row in data["rows"]) <= readable * len(data["rows"])


def test_page_names_layers_where_no_mouse_is(small: PlanDocument) -> None:
    """Layers of every stage stand in the text; replicas only where there are several."""
    page = html_page(small, simulate_step(costs_of(small))).partition("<h2>One step")[0]
    shown = re.sub(r'title="[^"]*"', "", page)
    for stage in small.replicas[0].stages:
        assert f"layers {layers_text(small.instance.workload, range(*stage.layers))}" in shown
    assert ("replicas 0-" in shown) == (len(small.replicas) > 1)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium to look at the page with")
@pytest.mark.parametrize("name", ["small", "long"])
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
    canvas = re.search(r'<canvas id="step"[^>]*height="(\d+)"', done.stdout)
    assert canvas is not None
    assert int(canvas[1]) > 100
    assert "critical path: what the step has to wait for" in done.stdout.rpartition("<script")[0]
    assert time_text(document.step_time_s or 0) in done.stdout
    told = re.search(r'<p id="what">([^<]*)', done.stdout)
    assert told is not None
    assert told[1].startswith(("forward of micro-batch", "backward of micro-batch"))


#: Presses + and points at the middle of the first row.
CLOSER = """<script>
const canvas = document.getElementById("step"), box = canvas.getBoundingClientRect();
for (let i = 0; i < 5; i++) document.getElementById("in").click();
const at = {clientX: box.left + box.width / 2, clientY: box.top + 15, bubbles: true};
canvas.dispatchEvent(new PointerEvent("pointermove", at));
</script>"""


def test_report_writes_page_and_trace(small: PlanDocument, tmp_path: Path) -> None:
    """Both, or neither where one cannot be written; a plan file that was changed is refused."""
    plan, out, trace = (tmp_path / name for name in ("plan.json", "r.html", "t.json"))
    assert (
        run("solve", INSTANCES / "hetero_small.yaml", "--method", "minmax", "--out", plan)[0] == 0
    )
    code, text, _ = run("report", plan, "--out", out, "--trace", trace)
    assert (code, text) == (0, f"wrote {out} and {trace}\n")
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    missing = tmp_path / "none" / "t.json"
    other = tmp_path / "other.html"
    assert run("report", plan, "--out", other, "--trace", missing)[0] == 2
    assert not other.exists()
    changed = plan.read_text(encoding="utf-8").replace('"seed": 0', '"seed": 1')
    plan.write_text(changed, encoding="utf-8")
    code, _, error = run("report", plan, "--out", other)
    assert (code, other.exists(), error.count("\n")) == (2, False, 1)
