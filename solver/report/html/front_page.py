"""The page of a front: picture with tooltips, points, and where all other clusters stand."""

from formulations.units import NANOSECONDS_PER_SECOND
from solver.front_document import ClusterRecord, FrontDocument
from solver.report.front_picture import front_picture
from solver.report.front_text import cluster_name, cost_lines, point_rows, search_lines
from solver.report.html.page import sections_page
from solver.report.html.sections import lines_table, section, text_table
from solver.report.quantities import time_text
from solver.report.subsets_text import subset_lines


def front_page(document: FrontDocument) -> str:
    """One HTML file that needs nothing else."""
    instance = document.family.instance
    title = f"{instance.name}: {instance.workload.name}"
    least = "fewest nodes" if document.aim == "subsets" else "least cost"
    note = (
        f"The line is the {least} at a throughput. Dominated clusters are faint; hollow ones "
        "stand where plans of theirs can be at best."
    )
    lines = [*subset_lines(document), *cost_lines(document), *search_lines(document)]
    parts = [
        section("Front", front_picture(document), note),
        section("Points", _points(document)),
        section("Proof", lines_table(lines)),
        section("Other clusters", _others(document)),
    ]
    return sections_page(title, parts)


def _points(document: FrontDocument) -> str:
    texts, numbers, rows = point_rows(document)
    return text_table([*texts, *numbers], rows)


def _others(document: FrontDocument) -> str:
    listed = {point.nodes for point in document.points}
    rows = [_row(document, one) for one in document.clusters if one.nodes not in listed]
    return text_table(["cluster", "stands", "step", "at least"], rows)


def _row(document: FrontDocument, one: ClusterRecord) -> list[str]:
    times = [
        "" if ns is None else time_text(ns / NANOSECONDS_PER_SECOND)
        for ns in (one.step_time_ns, one.bound_ns)
    ]
    standing = one.standing.replace("infeasible", "no plan")
    if one.dominated_by is not None:
        standing = f"behind {cluster_name(document, one.dominated_by)}, by {one.closed_by}"
    return [cluster_name(document, one.nodes), standing, *times]
