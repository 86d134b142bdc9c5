"""Reports on small plans, fleets and fronts as they are stored in tests/data/shown.

`python -m tests.report.shown` writes them anew; the figures are held by other tests.
"""

from collections.abc import Iterator
from io import StringIO

from rich.console import RenderableType

from solver.document import PlanDocument
from solver.files import sealed
from solver.plan_figures import costs_of
from solver.report.compared import difference
from solver.report.fleet import fleet_text
from solver.report.front import front_report
from solver.report.front_picture import front_picture
from solver.report.layout import draw
from solver.report.text import plan_text, solution_text
from solver.simulate import simulate_step
from tests.certified_cases import CASES
from tests.conftest import ROOT
from tests.report.cases import fleets, front, subsets

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


def report_on(name: str) -> str:
    """What `show` prints of a plan, then `solve`, then `diff` with the first of PLANS."""
    document = plan(name)
    shown = plan_text(document, simulate_step(costs_of(document)))
    other = difference(plan(PLANS[0]), document, (PLANS[0], name))
    return drawn(*shown, "", *solution_text(document), "", *other)


def reports() -> Iterator[tuple[str, str]]:
    """The name and the text of everything that is stored."""
    yield from ((name, report_on(name)) for name in PLANS)
    yield "front", drawn(*front_report(front()))
    yield "front_picture", front_picture(front())
    yield "subsets", drawn(*front_report(subsets()))
    for n, fleet in enumerate(fleets()):
        yield f"fleet_{n}", drawn(*fleet_text(fleet, 2 * fleet.step_time_s))


if __name__ == "__main__":
    for name, text in reports():
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
