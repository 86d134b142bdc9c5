"""The page of a step of mixed lengths: its picture, groups, figures, and all strategies."""

from formulations.units import seconds
from solver.lengths_document import LengthsDocument
from solver.report.html.page import lines_table, section, sections_page, text_table
from solver.report.lengths_picture import lengths_picture
from solver.report.lengths_step import NUMBERS, TEXTS, group_rows, lines
from solver.report.quantities import time_text

_STRATEGIES = ("strategy", "replicas", "stages", "longest row", "visit", "as anchor")


def lengths_page(document: LengthsDocument) -> str:
    """One HTML file that needs nothing else."""
    title = f"{document.workload}: mixed lengths"
    rows = group_rows(document)
    parts = [
        section("Step", lengths_picture(document)),
        section("Groups", text_table((*TEXTS, *NUMBERS), rows, len(TEXTS))),
        section("Figures", lines_table(lines(document))),
        section("Strategies", text_table(_STRATEGIES, _strategies(document), 1)),
    ]
    return sections_page(title, parts)


def _strategies(document: LengthsDocument) -> list[list[str]]:
    rows = []
    for one in document.problem.strategies:
        once = [time_text(seconds(ns)) for ns in (one.visit_ns, one.anchor_ns)]
        if not one.replicas:
            rows.append([one.name, "measured", "", "", *once])
            continue
        stages = sorted({own.stages for own in one.replicas})
        longest = min(own.longest_row for own in one.replicas)
        count = sum(own.count for own in one.replicas)
        own = [f"{count:,}", ", ".join(map(str, stages)), f"{longest:,}"]
        rows.append([one.name, *own, *once])
    return rows
