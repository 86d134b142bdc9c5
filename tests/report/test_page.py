"""The page of a plan, its trace, and the fold that leaves the steady state out."""

import json
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_instance
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.report.document import build_document, costs_of
from solver.report.html.page import html_page
from solver.report.naming import layers_text
from solver.report.quantities import size_text, time_text
from solver.report.step import chrome_trace, fold_for, rows_of
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


@pytest.mark.parametrize("most", [4, 50, 1000, 100_000])
def test_fold_hides_nothing_but_what_lies_in_it(small: PlanDocument, most: int) -> None:
    """Times shown of every row and those in the fold add up to the row's; order is kept."""
    step = simulate_step(costs_of(small))
    rows = rows_of(small, step)
    fold = fold_for(rows, step.step_time_ns, most)
    for row in rows:
        shown = [part for bar in row.bars for part in fold.parts(bar.start_ns, bar.end_ns)]
        inside = sum(
            max(0, min(bar.end_ns, fold.end_ns) - max(bar.start_ns, fold.start_ns))
            for bar in row.bars
        )
        total = sum(bar.end_ns - bar.start_ns for bar in row.bars)
        assert sum(end - start for start, end in shown) + inside == total
        assert shown == sorted(shown)
        assert not any(fold.start_ns < start < fold.start_ns + fold.width_ns for start, _ in shown)
    assert fold.end_ns - fold.skipped_ns == fold.start_ns + fold.width_ns


def test_trace_has_the_fields_of_its_format(small: PlanDocument) -> None:
    """Trace Event Format: complete and metadata events; as long as the step, none overlapping."""
    trace = json.loads(chrome_trace(small, simulate_step(costs_of(small))))
    assert set(trace) == {"displayTimeUnit", "traceEvents"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    bars: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index")
            assert set(event["args"]) <= {"name", "sort_index"}
            continue
        assert event["ph"] == "X"
        assert set(event) == {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}
        assert event["ts"] >= 0 <= event["dur"]
        bars.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["dur"]))
    end = max(start + duration for own in bars.values() for start, duration in own)
    assert end == pytest.approx((small.step_time_s or 0) * 1e6)
    for own in bars.values():
        own.sort()
        for (start, duration), (later, _) in pairwise(own):
            assert start + duration <= later + 1e-6


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
