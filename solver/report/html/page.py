"""The page of a plan: its figures, its machines, one step to zoom into, and its proof."""

import json
from collections.abc import Iterable
from html import escape
from importlib import resources

from formulations.instance.target import TARGET_NAMES
from solver.document import PlanDocument
from solver.report.html import sections
from solver.report.html.search import search_chart
from solver.report.html.timeline import timeline_data
from solver.report.quantities import percent, significant, time_text
from solver.report.text import figures, heading_lines, outcome
from solver.simulate import Step

_NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'
_TIMELINE = (
    '<div class=tools><button id=in title="zoom in">+</button>'
    '<button id=out title="zoom out">&minus;</button><button id=all>whole step</button>'
    "<span id=hint>drag to move; two fingers, or Ctrl and the wheel, to zoom</span></div>"
    '<canvas id=step role=img aria-label="one training step"></canvas>'
    "<p id=what>&nbsp;</p><ul class=legend id=kinds></ul>"
)


def html_page(document: PlanDocument, step: Step) -> str:
    """One HTML file that needs nothing else, for a document with a plan and its simulated step."""
    costs = step.costs
    names = dict.fromkeys((document.instance.name, document.instance.workload.name))
    title = ": ".join(names)
    data = json.dumps(timeline_data(document, step), separators=(",", ":")).replace("<", "\\u003c")
    parts = [
        f"<header><h1>{escape(title)}</h1>{_headline(document)}</header><main>",
        sections.section("Plan", sections.lines_table(heading_lines(document))),
        sections.section(
            "Stages", sections.stages(document), "Layers of the model, stage by stage."
        ),
        sections.section(
            "Machines", sections.machines(document), "The number on a GPU is the stage it runs."
        ),
        sections.section(
            "Memory", sections.memory(document), "Peak on each GPU; the mark is the limit."
        ),
        sections.section("One step", _TIMELINE),
        sections.section("Where the time goes", sections.time_spent(document, costs, step)),
        sections.section("Proof", sections.lines_table(outcome(document)) + search_chart(document)),
        sections.section("Figures and assumptions", sections.lines_table(figures(document))),
        "</main>",
    ]
    script = (
        f'<script type="application/json" id=data>{data}</script>'
        f"<script>{_asset('page.js')}</script>"
    )
    return bare_page(title, "\n".join([*parts, script]))


def sections_page(title: str, parts: Iterable[str]) -> str:
    """A page of sections below its title; pictures need no namespace in HTML."""
    body = "\n".join([f"<header><h1>{escape(title)}</h1></header><main>", *parts, "</main>"])
    return bare_page(title, body.replace(_NAMESPACE, ""))


def bare_page(title: str, body: str) -> str:
    """A page in our style."""
    return (
        '<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content="'
        f'width=device-width,initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_asset('page.css')}</style></head><body>\n{body}</body></html>\n"
    )


def _asset(name: str) -> str:
    return resources.files("solver.report.html").joinpath(name).read_text(encoding="utf-8")


def _headline(document: PlanDocument) -> str:
    """The figures that matter most, each with its name."""
    status = f"{document.status} for {TARGET_NAMES[document.target]}"
    found = [("step time", time_text(document.step_time_s or 0.0)), ("status", status)]
    if document.lower_bound_s is not None and document.gap is not None:
        found.append(("no plan is below", time_text(document.lower_bound_s)))
        found.append(("gap", percent(document.gap)))
    if document.throughput_sequences_per_s is not None:
        rate = f"{significant(document.throughput_sequences_per_s)} sequences/s"
        found.append(("throughput", rate))
    if document.mfu is not None:
        found.append(("MFU", percent(document.mfu)))
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in found
    )
    return f"<dl class=headline>{cells}</dl>"
