"""Reports on small plans, fleets and fronts as they are stored in tests/data/shown.

`python -m tests.report.shown` writes them anew; the figures are held by other tests.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from io import StringIO
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Group, RenderableType

from formulations.instance.huggingface import sizes_from_config
from formulations.instance.machines import gpu_catalogue
from solver.clusters.front import Measure
from solver.document import PlanDocument
from solver.files import sealed
from solver.fleet_document import FleetDocument
from solver.fleets.fleet import next_fleet
from solver.front_document import ClusterRecord, FrontDocument
from solver.lengths.choose import build_lengths, choose
from solver.lengths_document import LengthsDocument
from solver.plan_figures import step_of
from solver.replay.player import Replay, Span
from solver.replay.policy import Policy
from solver.report.catalogue import catalogue_report, workload_json, workload_report
from solver.report.compared import (
    comparison_json,
    comparison_text,
    difference,
    evaluation_json,
    evaluation_text,
)
from solver.report.explained import explanation
from solver.report.fleet import draw_replays, fleet_text, replay_json, replay_text
from solver.report.front import Figures, front_report, subset_lines
from solver.report.front_picture import Mark, draw_front, front_page
from solver.report.html.page import html_page
from solver.report.layout import Labelled, draw
from solver.report.lengths import lengths_page, step_text, switch_page, switch_text
from solver.report.step import chrome_trace, rows_of, timeline_data, timeline_table
from solver.report.text import chain_text, plan_text, solution_text
from solver.result import (
    Answer,
    Comparison,
    Evaluation,
    Finding,
    Infeasibility,
    Moment,
    OtherTarget,
    Status,
    Termination,
)
from tests.architectures import build, parsed_config
from tests.certified_cases import CASES
from tests.conftest import ROOT
from tests.hand_made import document_of, pipelined_result, planless_result
from tests.mixed_lengths import random_mixed
from tests.small_families import SEEDS, found, searched, small_family
from tests.switch_cases import example
from tests.template_cases import HOUR, after_a_loss, seven_nodes

MS = 10**6
#: A point of another source in the picture of a front.
THEIRS = Mark("theirs", Figures(1.0, 1.0), "x")
FOLDER = ROOT / "tests" / "data" / "shown"
#: Plans that together have zones, chunks, experts, spot nodes, split backward passes, idle nodes.
PLANS = ("on_spot", "interleaved", "zones", "split_backward", "whole_experts", "sharded", "idle")


@cache
def front() -> FrontDocument:
    """A front of money with several points, found in 2 s."""
    return unsearched(found(SEEDS[0]))


@cache
def subsets() -> FrontDocument:
    """The best subsets of the same nodes."""
    family = small_family(SEEDS[0])
    return unsearched(searched(family, Measure(family, "subsets")))


def unsearched(document: FrontDocument) -> FrontDocument:
    """Whatever the search took, and by which means it closed its clusters."""
    clusters = tuple(cluster.but(closed_by="search") for cluster in document.clusters)
    return document.but(runtime_s=2.0, clusters=clusters)


@cache
def fleets() -> tuple[FleetDocument, FleetDocument, FleetDocument]:
    """On seven nodes, without one of them, and with it again."""
    fleet, after = seven_nodes(), after_a_loss()
    return fleet, after, next_fleet(after, [], [fleet.pipelines[0].nodes[0]], HOUR)


def drawn(*parts: RenderableType) -> str:
    """What is printed where no terminal looks on."""
    page = StringIO()
    draw(parts, page)
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def stored(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def plan(name: str) -> PlanDocument:
    """One of PLANS, without the log of its proof, which is not of the report."""
    log = {"total": 0, "open": 0, "closed_by": {}}
    return sealed(CASES[name]().but(closed_configs=(), configs=log))


@cache
def report_on(name: str) -> str:
    """What `show` prints of a plan, then `solve`, then `diff` with the first of PLANS."""
    document = plan(name)
    shown = plan_text(document)
    compared_to_first = difference(plan(PLANS[0]), document, (PLANS[0], name))
    solved = solution_text(document, details=True)
    return drawn(*shown, *solved, *compared_to_first)


def fleet(n: int) -> str:
    """What `recover` prints of one of three fleets, of which some nodes may be idle.

    Then of the second as if there had been no pipeline 0 before.
    """
    _, after, _ = every = fleets()
    assert after.recovery is not None
    fewer = after.but(recovery=after.recovery.but(before=after.recovery.before[1:]))
    document = (*every, fewer)[n]
    return drawn(*fleet_text(document, 2 * document.step_time_s))


def subsets_of_nodes() -> str:
    """The best of every size; why nodes are idle, from what is known with one node more."""
    document = subsets()
    fastest = min(document.points, key=lambda point: point.plan.step_time_s or 0.0)
    more = (fastest.nodes[0], fastest.nodes[1] + 1)
    record = next(cluster for cluster in document.clusters if cluster.nodes == more)
    others = [cluster for cluster in document.clusters if cluster.nodes != more]
    standings: tuple[list[ClusterRecord], ...] = (
        [],
        [record.but(standing="infeasible", step_time_ns=None)],
        [record.but(step_time_ns=2 * 10**9)],
        [record.but(standing="open", step_time_ns=None)],
    )
    lines = [subset_lines(document.but(clusters=(*others, *changed))) for changed in standings]
    *parts, last = front_report(document)
    return drawn(*parts, Group(last, *map(Labelled, lines)))


def front_in_time() -> str:
    """A front, and where its clusters stand if time had run out: of open ones five are named."""
    document = front()
    opened = tuple(c.but(standing="open") for c in document.clusters for _ in range(3))
    late = document.but(clusters=opened, termination="time_limit")
    return drawn(*front_report(document), *front_report(late))


def body(page: str) -> str:
    """A page without the style that all pages share; of charts, their texts."""
    shown = page.partition("<body>")[2]
    text = re.compile(r"<text[^>]*>(.*?)</text>")
    return re.sub("(?s)<svg.*?</svg>", lambda svg: "; ".join(text.findall(svg[0])), shown)


def charted(draw: Callable[[Axes], None]) -> str:
    """Texts and places of all that a chart shows, but for its ticks."""
    figure = Figure(layout="constrained")
    draw(figure.subplots())
    shown = list[object]()
    for axes in figure.axes:
        shown += [axes.get_xlabel(), axes.get_ylabel(), axes.get_xlim(), axes.get_ylim()]
        shown += [text.get_text() for text in axes.texts]
        for lines in axes.lines:
            shown += [str(lines.get_label()), np.asarray(lines.get_xydata()).tolist()]
        for dots in axes.collections:
            shown += [str(dots.get_label()), np.asarray(dots.get_offsets()).tolist()]
    rounded = json.loads(json.dumps(shown), parse_float=lambda text: float(f"{float(text):.6g}"))
    return "\n".join(map(json.dumps, rounded))


def page() -> str:
    """What a page shows without its scripts, and what these draw: of a plan beside another one.

    It was found on the way to the bound.
    """
    document = plan("zones")
    step_s = document.step_time_s or 0.0
    notes = ((1.0, 1.5 * step_s, 0.5), (2.0, step_s, 0.9), (3.0, step_s, 1.0))
    history = tuple(Moment(elapsed_s=s, step_time_s=t, bound=share) for s, t, share in notes)
    found = sealed(document.but(history=history, runtime_s=4.0))
    text = html_page(found, "a plan.json", (plan("sharded"), "other.json"))
    return body(text).partition("<script>")[0]


def timeline() -> str:
    """Data of a picture, and the table below it."""
    document = plan("zones")
    step = step_of(document)
    rows = rows_of(document, step)
    data = json.dumps(timeline_data(document, rows, step))
    return drawn(Group(timeline_table(document, rows, step), data))


def replays() -> dict[str, Replay]:
    """Two steps of 10 samples in 0..4 s, nothing to 6 s, one step to 10 s; the same twice."""
    spans = ((0, 4, "training", 3, 2), (4, 6, "waiting", 0, 0), (6, 10, "training", 3, 1))
    run = tuple(Span(begin * 10**9, end * 10**9, *rest) for begin, end, *rest in spans)  # type: ignore[arg-type]
    return {"ours": Replay(run, 10), "restart": Replay(run, 10)}


def replayed() -> str:
    """Two policies, of which one was stopped, in words and as data; they share a source."""
    ours, restart = replays().values()
    rests_on = {"ours": ("a paper",), "restart": ("a paper", "a page")}
    policies = {
        name: cast(Policy, SimpleNamespace(sources=sources)) for name, sources in rests_on.items()
    }
    stopped = replace(restart, complete=False)
    runs = {"ours": (policies["ours"], ours), "restart": (policies["restart"], stopped)}
    lines, table = replay_text(runs, "plans of the templates")
    return drawn(lines, Group(table, json.dumps(replay_json(runs))))


def lengths() -> LengthsDocument:
    chosen = choose(random_mixed(7), "ascending")
    return build_lengths(chosen, "tiny").but(runtime_s=2.0, above=(0.001, 0.02))


def compared() -> str:
    """A plan of 3 ms, and no plan, or a bound of 2 ms, or of 4 ms, which contradicts it.

    In time and money.
    """
    result = replace(
        pipelined_result(),
        method="minmax",
        status=Status.FEASIBLE,
        termination=Termination.HEURISTIC,
        step_time_ns=3 * MS,
        objective=3.0 * MS,
        bound=None,
        runtime_s=0.5,
    )
    heuristic = Finding(**vars(result), judged_ns=3 * MS)
    stopped = replace(heuristic, method="exact", termination=Termination.TIME_LIMIT)
    late = Finding(**vars(planless_result(Status.UNKNOWN, Termination.TIME_LIMIT)))
    of_exact = [late, *(replace(stopped, bound=bound_ns) for bound_ns in (2.0 * MS, 4.0 * MS))]
    parts: list[RenderableType] = []
    for minimize in ("step_time", "cost_per_step"):
        instance = pipelined_result().instance.but(objective={"minimize": minimize})
        for exact in of_exact:
            comparison = Comparison(instance, (heuristic, exact))
            table, verdict = comparison_text(comparison)
            parts += [table, Group(verdict, json.dumps(comparison_json(comparison)))]
    return drawn(*parts)


ANSWERS = (
    Answer("none", Status.INFEASIBLE),
    Answer("late", Status.UNKNOWN),
    Answer("a tenth", Status.FEASIBLE, 1.0, 0.1, None, 2.5, 0.7, ("torchtitan",)),
    Answer("proved", Status.OPTIMAL, 1.0, 0.1, 0.1004, None, 0.9999),
    Answer("nothing", Status.OPTIMAL, 1.0, 0.0004, 0.1),
    Answer("costs", Status.OPTIMAL, 1.0, -0.2, -0.1),
)


def explained() -> str:
    """What changes bring, as far as proved; of what has no plan, and of little.

    What is no plan, not reached, or the same within 0.05 % is told apart.
    """
    document = document_of(pipelined_result())
    *parts, last = explanation(document, ANSWERS)
    for few in (ANSWERS[:2], ANSWERS[4:]):
        _, changes, lines = explanation(document, few)
        table = cast(Group, changes).renderables[1]
        parts, last = [*parts, Group(last, table)], lines
    return drawn(*parts, last)


def evaluated() -> str:
    """A plan that breaks limits, the best one, and another."""
    over = ("instance.limits.max_step_time_s: too long", "replicas[0]: too large")
    changes, text = (ANSWERS[2], ANSWERS[0]), ""
    best = pipelined_result()
    document = document_of(best)
    for share, broken, told in ((1.5, over, changes), (1.0, (), ()), (0.5, (), ANSWERS[5:])):
        run = Evaluation(share * (best.objective or 0.0), broken, best, told)
        data = json.dumps(evaluation_json(document, run) | {"config": "as above"})
        text += f"\n{drawn(*evaluation_text(document, run))}{drawn(data)}"
    return text


def planless() -> str:
    """UNKNOWN is told apart from INFEASIBLE, with reason and remedy; what other targets bring.

    What was seen there, what is not ruled out, and what nobody had time for, together.
    """
    late = document_of(planless_result(Status.UNKNOWN, Termination.TIME_LIMIT))
    none = document_of(planless_result(Status.INFEASIBLE, Termination.CLOSED))
    others = (
        OtherTarget(target="torchtitan", gain=0.2, found_gain=0.1, search="{a: b}"),
        OtherTarget(target="megatron", gain=0.3, search="{c: d}"),
        OtherTarget(target="flagscale", gain=None, search="{}"),
    )
    reason = Infeasibility("memory", "larger GPUs")
    told = solution_text(late, None, others, details=True)
    return drawn(*told, *solution_text(none, reason))


def catalogued() -> str:
    """Two GPUs, and a chain in which blocks of two kinds take turns: those of a kind in one row."""
    path = ROOT / "tests" / "data" / "huggingface" / "gpt-oss-20b.json"
    sizes = sizes_from_config(parsed_config(json.loads(path.read_text(encoding="utf-8"))))
    workload = build(sizes, 256, flash=True, source="t")
    gpus = {name: gpu for name, gpu in gpu_catalogue().items() if name in ("A10", "V100-16")}
    chain = Group(chain_text(workload), json.dumps(workload_json(workload)))
    return drawn(*workload_report(workload), chain, *catalogue_report(gpus, [workload]))


REPORTS: dict[str, Callable[[], str]] = {
    **{name: partial(report_on, name) for name in PLANS},
    "planless": planless,
    "catalogued": catalogued,
    "compared": compared,
    "evaluated": evaluated,
    "explained": explained,
    "front": front_in_time,
    "front_picture": partial(
        charted, lambda axes: draw_front(axes, front(), [THEIRS], "theirs & more")
    ),
    "front_page": lambda: body(front_page(front())),
    "page": page,
    "subsets": subsets_of_nodes,
    **{f"fleet_{n}": partial(fleet, n) for n in range(4)},
    "switch": lambda: drawn(*switch_text(example().but(runtime_s=2.0))),
    "switch_page": lambda: body(switch_page(example().but(runtime_s=2.0))),
    "trace": lambda: chrome_trace(plan("interleaved")),
    "timeline": timeline,
    "lengths": lambda: drawn(*step_text(lengths())) + body(lengths_page(lengths())),
    "replay": replayed,
    "replay_picture": partial(charted, lambda axes: draw_replays(axes, replays())),
}


def check_stored(*names: str) -> Callable[[str], None]:
    """A test that each of the reports is made today as it is stored."""

    def test(name: str) -> None:
        assert REPORTS[name]() == stored(name)

    marked: Callable[[str], None] = pytest.mark.parametrize("name", names)(test)
    return marked


if __name__ == "__main__":
    for name, report in REPORTS.items():
        (FOLDER / f"{name}.txt").write_text(report(), encoding="utf-8")
