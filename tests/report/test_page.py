"""The page of a plan, in the text that it is and in a browser."""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formulations.costs.tables import build_tables
from formulations.decisions import Decisions
from formulations.instance.load import load_instance
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.report.html.page import html_page, places
from solver.search.driver import solve
from tests.conftest import ROOT, present
from tests.export_cases import JOBS
from tests.hand_made import document_of, result_of
from tests.report.shown import check_stored, plan, stored
from tests.small_instances import plain_config

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
#: The script of axe-core, which `npm install axe-core` fetches; where it lies unless it is named.
AXE = Path(os.environ.get("HETPLAN_AXE", ROOT / "node_modules/axe-core/axe.min.js"))
browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium to look at the page with")
#: Measured: 0.4 s for 256 GPUs, 0.7 to 1.0 s for 4,096, on two busy cores (November 2026).
GENEROUS_MS = 10_000


@pytest.fixture(scope="module")
def long() -> PlanDocument:
    """A plan with 1,024 and more micro-batches on four nodes of two types."""
    instance = load_instance(ROOT / "instances" / "hetero_small.yaml")
    workload = instance.workload.but(global_batch=8192)
    search = {"micro_batch": (4,), "data_parallel": (2,)}
    options = SolveOptions("minmax")
    return build_document(solve(instance.but(workload=workload, search=search), options), options)


def large(gpus: int) -> PlanDocument:
    """Tensor groups of eight on so many GPUs, 16 stages, split evenly."""
    nodes, loaded = gpus // 8, load_instance(ROOT / "instances" / "megatron_145b.yaml")
    instance, dp = loaded.with_nodes((nodes,)).with_batch(512), nodes // 16
    tables = build_tables(instance, plain_config((nodes,), tp=8, dp=dp, pp=16))
    cuts = tuple(round(tables.num_layers * k / 16) for k in range(17))
    plan = Decisions((0,) * nodes, cuts, (512 // dp,) * dp).plan(tables)
    return document_of(result_of(instance, plan))


def looked_at(page: str, folder: Path, *flags: str, axe: str = "") -> dict[str, Any]:
    """What `probe.js` says of a page in Chromium, where nothing may be said on the console."""
    probe = (ROOT / "tests" / "report" / "probe.js").read_text(encoding="utf-8")
    path = folder / "report.html"
    path.write_text(f"{page}<script>{axe}</script><script>{probe}</script>", encoding="utf-8")
    usual = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr")
    waiting = ("--virtual-time-budget=60000", f"--user-data-dir={folder / 'profile'}")
    command = [str(CHROMIUM), *usual, *waiting, *flags, "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    assert "CONSOLE" not in done.stderr
    answers = present(re.search(r'<pre id="answers">(.*?)</pre>', done.stdout, re.DOTALL))
    said: dict[str, Any] = json.loads(unescape(answers[1]))
    return said


test_page_is_as_stored = check_stored("page")


def test_page_needs_nothing_else() -> None:
    """No address, no other file; figures, layers and stages stand on it without its scripts."""
    assert not re.search(r"https?://|\ssrc=|@import|url\(", stored("page"))


def test_page_of_many_micro_batches_stays_small(long: PlanDocument) -> None:
    """The steady state is left out, and said so."""
    page = html_page(long)
    assert len(page.encode()) < 1_000_000
    (step,) = json.loads(page.partition("id=data>")[2].partition("</script>")[0])["steps"]
    assert step["hidden"] > 0
    assert sum(len(row["bars"]) for row in step["rows"]) <= 8000


def test_ranks_of_shared_sequences_are_told_from_those_of_data() -> None:
    """Two GPUs of a stage share each sequence, side by side; two replicas."""
    ranks = [place[3:] for place in places(JOBS["ring"])]
    assert ranks == [(0, c, d, k) for k in range(2) for d in range(2) for c in range(2)]


@browser
@pytest.mark.parametrize("name", ["long", "beside"])
def test_keys_pan_and_zoom(name: str, long: PlanDocument, tmp_path: Path) -> None:
    """Every key changes what is drawn, and says so; looking closer shows passes, not the gap."""
    document = long if name == "long" else plan("zones")
    beside = (plan("sharded"), "other.json") if name == "beside" else None
    seen = looked_at(html_page(document, "plan.json", beside), tmp_path)
    drawn, told = seen["drawn"], seen["told"]
    assert drawn["0"] != drawn["+"] != drawn["ArrowRight"] != drawn["ArrowLeft"] != drawn["-"]
    assert re.fullmatch(r"shown: 0 \w+ to .+", told["0"])
    assert told["+"] != told["0"] != told["ArrowRight"] != told["ArrowLeft"]
    assert told["ArrowDown"].partition("; ")[2].startswith("stage 0: layers E")
    assert re.match(r"\w.+, [\d.]+ \w+ from [\d.]+ \w+; stage 0: ", told["."])
    assert told[","] != told["."]
    assert all(parts > 0 for name, parts in seen["pictures"] if name != "search")
    assert seen["focus"]
    assert not seen["loaded"]


@browser
@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: see HETPLAN_AXE in CONTRIBUTING.md")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(scheme: str, tmp_path: Path) -> None:
    """axe-core has nothing to say, contrast included (4.5 and more), of light pages and dark."""
    flag = f"--blink-settings=preferredColorScheme={['dark', 'light'].index(scheme)}"
    page = html_page(plan("zones"), "a.json", (plan("on_spot"), "b.json"))
    seen = looked_at(page, tmp_path, flag, axe=AXE.read_text(encoding="utf-8"))
    assert seen["dark"] == (scheme == "dark")
    assert seen["contrast"]
    assert seen["violations"] == []


@browser
def test_pages_of_large_clusters_are_drawn_soon(tmp_path: Path) -> None:
    seen = looked_at(html_page(large(4096)), tmp_path)
    assert seen["gpus"] == 4096
    assert seen["painted"] < GENEROUS_MS


# Colours

#: Linear RGB as deuteranopes, protanopes and tritanopes see it (Machado et al. 2009, severity 1).
SEEN = (
    np.eye(3).ravel(),
    [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
    [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
    [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
)
#: Oklab (Ottosson 2020).
LMS = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.63]])
LAB = np.array([[0.2105, 0.7936, -0.0041], [1.978, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])


def linear(colour: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    digits = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    values = np.array([int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def palettes() -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
    """Kinds of cost, GPU types: name, fill and colour of texts on it."""
    style = (ROOT / "solver/report/html/page.css").read_text(encoding="utf-8")
    texts = dict(re.findall(r"--on-(\w+): #(\w+);", style))
    fills = {kind: re.findall(rf"--{kind}: #(\w+);", style)[0] for kind in texts}
    types = re.findall(r"\.(type\d) { --fill: #(\w+); --on: #(\w+); }", style)
    kinds = {kind: (fills[kind], texts[kind]) for kind in texts}
    return kinds, {name: (fill, text) for name, fill, text in types}


def test_colours_can_be_told_apart_and_read() -> None:
    """GPU types and kinds of cost share no hue; texts on all of them have a contrast of 4.5."""
    kinds, types = palettes()
    colours = [linear(fill) for fill, _ in (*kinds.values(), *types.values())]
    for rows in SEEN:
        matrix = np.reshape(rows, (3, 3))
        seen = [LAB @ np.cbrt(LMS @ np.clip(matrix @ colour, 0, 1)) for colour in colours]
        nearest = min(np.linalg.norm(a - b) for a, b in combinations(seen, 2))
        assert nearest > 0.09
    lab = [LAB @ np.cbrt(LMS @ colour) for colour in colours]
    hues = [np.degrees(np.arctan2(b, a)) % 360 for _, a, b in lab]
    assert max(hues[: len(kinds)]) < 160 < 220 < min(hues[len(kinds) :])
    for fill, text in (*kinds.values(), *types.values()):
        dark, light = sorted(linear(each) @ (0.2126, 0.7152, 0.0722) for each in (fill, text))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, fill
