"""Reports on small plans, fleets and fronts as they are stored in tests/data/shown.

`python -m tests.report.shown` writes them anew; the figures are held by other tests.
"""

from collections.abc import Callable
from functools import partial
from io import StringIO

from rich.console import RenderableType

from solver.document import PlanDocument
from solver.files import sealed
from solver.lengths.choose import build_lengths, choose
from solver.lengths_document import LengthsDocument
from solver.plan_figures import costs_of
from solver.replay.player import Replay, Span
from solver.report.compared import difference
from solver.report.fleet import fleet_text
from solver.report.front import front_report
from solver.report.front_picture import front_page, front_picture
from solver.report.html.page import html_page
from solver.report.layout import draw
from solver.report.lengths import lengths_page, step_text
from solver.report.replay import replay_picture
from solver.report.step import chrome_trace
from solver.report.switch import switch_page, switch_text
from solver.report.text import plan_text, solution_text
from solver.result import Moment
from solver.simulate import Step, simulate_step
from tests.certified_cases import CASES
from tests.conftest import ROOT
from tests.mixed_lengths import random_mixed
from tests.report.cases import fleets, front, subsets
from tests.switch_cases import example

FOLDER = ROOT / "tests" / "data" / "shown"
#: Plans that together have zones, chunks, experts, spot nodes, split backward passes, idle nodes.
PLANS = ("on_spot", "interleaved", "zones", "split_backward", "whole_experts", "sharded", "idle")


def drawn(*parts: RenderableType) -> str:
    """What is printed where no terminal looks on."""
    page = StringIO()
    draw(parts, page)
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def stored(name: str) -> str:
    """The stored text of a report."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def plan(name: str) -> PlanDocument:
    """One of PLANS, without the log of its proof, which is not of the report."""
    log = {"total": 0, "open": 0, "closed_by": {}}
    return sealed(CASES[name]().but(closed_configs=(), configs=log))


def step_of(document: PlanDocument) -> Step:
    """The simulated step of a plan."""
    return simulate_step(costs_of(document))


def report_on(name: str) -> str:
    """What `show` prints of a plan, then `solve`, then `diff` with the first of PLANS."""
    document = plan(name)
    shown = plan_text(document, step_of(document))
    other = difference(plan(PLANS[0]), document, (PLANS[0], name))
    return drawn(*shown, "", *solution_text(document), "", *other)


def fleet(n: int) -> str:
    """What `recover` prints of one of three fleets, of which some nodes may be idle."""
    document = fleets()[n]
    return drawn(*fleet_text(document, 2 * document.step_time_s))


def body(page: str) -> str:
    """A page without the style that all pages share."""
    return page.partition("<body>")[2]


def page() -> str:
    """What a page shows without its script, of a plan that was found on the way to the bound."""
    document = plan("zones")
    step_s = document.step_time_s or 0.0
    notes = ((1.0, 1.5 * step_s, 0.5), (2.0, step_s, 0.9), (3.0, step_s, 1.0))
    history = tuple(Moment(elapsed_s=s, step_time_s=t, bound=share) for s, t, share in notes)
    text = html_page(sealed(document.but(history=history, runtime_s=4.0)), step_of(document))
    return body(text).partition("<script")[0]


def replays() -> dict[str, Replay]:
    """Two steps of 10 samples in 0..4 s, nothing to 6 s, one step to 10 s; the same twice."""
    spans = ((0, 4, "training", 3, 2), (4, 6, "waiting", 0, 0), (6, 10, "training", 3, 1))
    run = tuple(Span(begin * 10**9, end * 10**9, *rest) for begin, end, *rest in spans)  # type: ignore[arg-type]
    return {"ours": Replay(run, 10), "restart": Replay(run, 10)}


def lengths() -> LengthsDocument:
    """Of a random problem, in which a switch pays."""
    chosen = choose(random_mixed(7), "ascending")
    return build_lengths(chosen, "tiny").but(runtime_s=2.0)


REPORTS: dict[str, Callable[[], str]] = {
    **{name: partial(report_on, name) for name in PLANS},
    "front": lambda: drawn(*front_report(front())),
    "front_picture": lambda: front_picture(front()),
    "front_page": lambda: body(front_page(front())),
    "page": page,
    "subsets": lambda: drawn(*front_report(subsets())),
    **{f"fleet_{n}": partial(fleet, n) for n in range(3)},
    "switch": lambda: drawn(*switch_text(example().but(runtime_s=2.0))),
    "switch_page": lambda: body(switch_page(example().but(runtime_s=2.0))),
    "trace": lambda: chrome_trace(plan("interleaved"), step_of(plan("interleaved"))),
    "lengths": lambda: drawn(*step_text(lengths())) + body(lengths_page(lengths())),
    "replay_picture": lambda: replay_picture("x", replays()),
}


def as_stored(name: str) -> tuple[str, str]:
    """A report as it is made today, and as it is stored."""
    return REPORTS[name](), stored(name)


if __name__ == "__main__":
    for name, report in REPORTS.items():
        (FOLDER / f"{name}.txt").write_text(report(), encoding="utf-8")
