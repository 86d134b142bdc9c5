"""The page of a plan: tables in plain HTML, and one JSON document from which scripts draw.

`plan.html` has the parts of the page in their order. Every picture has a table below it that says
the same, with names and units: where scripts do not run, the pictures alone are missing.
"""

import json
import shlex
from collections.abc import Iterable
from functools import partial
from html import escape
from string import Template

from formulations.instance.targets import TARGETS
from solver.document import PlanDocument
from solver.export.job import Job, host_names
from solver.export.registry import EXPORTERS
from solver.files import beside
from solver.plan_figures import plan_of, step_of
from solver.report.compared import difference, distinct_names
from solver.report.critical import SPEED_UP_PERCENT, Spent, by_type, improvements
from solver.report.layout import Grid, Labelled
from solver.report.links import flow_table, link_rows, link_table, loads_of
from solver.report.naming import WORDS, layers_text
from solver.report.quantities import percent, significant, time_text
from solver.report.stages import alike, memory_table, stage_table, tightest
from solver.report.step import rows_of, timeline_data, timeline_table
from solver.report.text import figures, heading_lines, outcome
from solver.simulate import Step

_asset = partial(beside, "solver.report.html")  #: text of a file of this folder
_SCRIPTS = ("base.js", "pictures.js", "timeline.js", "page.js")  #: in the order of their use


def html_page(
    document: PlanDocument,
    file: str = "plan.json",
    other: tuple[PlanDocument, str] | None = None,
) -> str:
    """One HTML file that needs nothing else, for a document with a plan.

    file: of the plan, for the commands that export it. other: a plan to compare with, and its
    file.
    """
    job = Job(document.instance.on(document.planned.nodes_used), plan_of(document))
    step = step_of(document)
    rows, spent, ranks = rows_of(document, step), by_type(document, step), places(job)
    memory = memory_table(document, {"used": "memory_bytes", "limit": "memory_limit_bytes"})
    title = ": ".join(dict.fromkeys((document.instance.name, document.instance.workload.name)))
    timed, bound_s = "stages; times per micro-batch, peak memory per GPU", document.lower_bound_s
    steps, names, compared = [timeline_data(document, rows, step)], ("", ""), ""
    if other is not None:
        second, second_step = other[0], step_of(other[0])
        names = distinct_names(file, other[1])
        steps.append(timeline_data(second, rows_of(second, second_step), second_step))
        compared = comparison(document, second, names)
    loads = loads_of(document)
    links = link_rows(document, loads)
    data = {"links": links, "steps": steps, "names": names, "spent": spent, "ranks": ranks}
    embedded = json.dumps(data | plan_data(document), separators=(",", ":"))
    body = Template(_asset("plan.html")).substitute(
        title=escape(title),
        step_time=time_text(document.step_time_s or 0.0),
        status=f"{document.status} for {TARGETS[document.target].name}",
        bound="not known" if bound_s is None else time_text(bound_s),
        gap="not known" if document.gap is None else percent(document.gap),
        rate=f"{significant(document.throughput_sequences_per_s or 0.0)} sequences/s",
        mfu=percent(document.mfu or 0.0),
        plan=Labelled(heading_lines(document)).html(),
        compared=compared,
        launch=exports(job, file).html("commands that write the launch files"),
        stages=stage_table(document).html(timed),
        machines=rank_table(ranks).html("every GPU, with its rank in each kind of groups"),
        tightest=escape(tightest(document)),
        memory=memory.html("peak memory of a GPU of every stage"),
        step=timeline_table(document, rows, step).html("what every stage does in one step"),
        spent=spent_table(spent, step).html("where the time goes"),
        faster=gain_table(document, step).html("what would shorten the step"),
        links=link_table(links, step.step_time_ns / 1e9).html(
            "links by how full they are, fullest first"
        ),
        flows=flow_table(document, loads).html("who sends what where"),
        proof=Labelled(outcome(document)).html(),
        figures=Labelled(figures(document)).html(),
        data=embedded.replace("<", "\\u003c"),  # no end of a script stands in it
        scripts="".join(map(_asset, _SCRIPTS)),
    )
    return _page(title, body)


def sections_page(title: str, parts: Iterable[str]) -> str:
    """A page of sections below its title, in our style."""
    head = f"<header><h1>{escape(title)}</h1></header>"
    return _page(title, "\n".join([head, "<main>", *parts, "</main>"]))


def section(title: str, body: str | Grid | Labelled, note: str = "") -> str:
    """A titled part of such a page; note: a sentence below the title."""
    below = f"<p class=note>{escape(note)}</p>" if note else ""
    if isinstance(body, Grid):
        body = body.html(title)
    shown = body if isinstance(body, str) else body.html()
    return f"<section><h2>{escape(title)}</h2>{below}{shown}</section>"


def _page(title: str, body: str) -> str:
    style = _asset("page.css")
    frame = Template(_asset("frame.html"))
    return frame.substitute(title=escape(title), style=style, body=body)


# Tables that only pages have


def comparison(document: PlanDocument, other: PlanDocument, names: tuple[str, str]) -> str:
    """Both plans in words and figures, and the stages of the other one."""
    lines, grid = difference(document, other, names)
    stages = stage_table(other).html(f"stages of {names[1]}")
    return section("Beside another plan", lines.html() + grid.html("both plans") + stages)


def exports(job: Job, file: str) -> Grid:
    """For every launch target the command that writes its files, or what is in the way."""
    rows = []
    for target, exporter in EXPORTERS.items():
        faults, own_model = exporter.faults(job), ""
        if faults and not exporter.faults(job.with_own_model):
            faults, own_model = [], " --own-model"
        command = f"hetplan export {shlex.quote(file)} --to {target} --out job-{target}{own_model}"
        if faults:
            command = f"not expressible: {faults[0].found}; allowed: {faults[0].allowed}"
        rows.append((exporter.name, command))
    return Grid(("for", "command"), (), rows)


Place = tuple[str, str, int, int, int, int, int]


def places(job: Job) -> list[Place]:
    """By rank: host, GPU type, GPU on the host, and tensor, context, data and pipeline rank.

    GPUs that share sequences are neighbours among those with the same tensors.
    """
    return [
        (rank.host, rank.gpu_type, rank.gpu, rank.tensor, share, rank.data // cp, rank.stage)
        for rank in job.ranks
        for cp in [job.degrees(rank.stage).cp]
        for share in [rank.data % cp]
    ]


def rank_table(ranks: Iterable[Place]) -> Grid:
    """Every GPU of the plan in rank order, with its place in each kind of groups."""
    rows = [(host, name, str(n), *map(str, at)) for n, (host, name, *at) in enumerate(ranks)]
    groups = [f"{kind} rank" for kind in ("tensor", "context", "data", "pipeline")]
    return Grid(("host", "GPU type"), ("rank", "GPU", *groups), rows)


def spent_table(spent: Iterable[Spent], step: Step) -> Grid:
    """The parts of the critical path, as times and as shares of the step."""
    total_ns = step.step_time_ns
    rows = [
        (text, time_text(time_ns / 1e9, total_ns / 1e9), percent(time_ns / total_ns))
        for text, time_ns, _ in spent
    ]
    return Grid(("on the critical path",), ("time", "share"), rows)


def gain_table(document: PlanDocument, step: Step) -> Grid:
    """What saves which share of the step."""
    rows = [(name, percent(share)) for name, share in improvements(document, step)]
    return Grid((f"{SPEED_UP_PERCENT} % less time for",), ("saves of the step",), rows)


def plan_data(document: PlanDocument) -> dict[str, object]:
    """What the pictures of a plan show.

    types: GPU types. hosts: [host, GPU type, zone, GPUs]. chain: virtual stages. memory: of a GPU,
    by stage, in bytes; margin: the share that is kept free. history: [search time in s, best step
    in s, bound as a share of the last plan's]; found: that plan's step and the search time, s.
    """
    cluster, workload = document.instance.cluster, document.instance.workload
    nodes = zip(host_names(cluster), cluster.node_groups, strict=True)
    return {
        "types": list(dict.fromkeys(group.gpu.name for group in cluster.groups)),
        "hosts": [
            [name, group.gpu.name, group.zone or "", group.gpus_per_machine]
            for names, j in nodes
            for group in [cluster.groups[j]]
            for name in names
        ],
        "chain": [
            {
                "stage": s % document.planned.pp,
                "text": layers_text(workload, range(*stage.layers)),
                "layers": stage.layers[1] - stage.layers[0],
                "types": list(dict.fromkeys(r.stages[s].gpu_type for r in document.replicas)),
            }
            for s, stage in enumerate(document.replicas[0].stages)
        ],
        "memory": [
            {
                "name": f"stage {row.stage}, {row.figures.gpu_type}",
                "parts": row.figures.memory.model_dump(),
                "limit": row.figures.memory_limit_bytes,
            }
            for row in alike(document)
            if not row.chunk
        ],
        "traffic": WORDS["traffic"],
        "margin": document.memory_margin.share if document.memory_margin else 0.0,
        "history": [(note.elapsed_s, note.step_time_s, note.bound) for note in document.history],
        "found": [document.step_time_s, document.runtime_s],
    }
