"""The page of a switch: its figures, the volumes of all GPUs, and who sends what to whom."""

from solver.report.html.page import lines_table, section, sections_page, text_table
from solver.report.quantities import size_unit
from solver.report.switch_picture import switch_picture
from solver.report.switch_text import COLUMNS, device_rows, sending_rows, switch_lines
from solver.switch_document import SwitchDocument

_SENDINGS = ("class", "slices", "from", "by way of", "to", "bytes")


def switch_page(document: SwitchDocument) -> str:
    """One HTML file that needs nothing else."""
    title = f"{document.workload.name}: switch"
    parts = [section("Switch", lines_table(switch_lines(document)))]
    if rows := device_rows(document):
        unit = size_unit(max(max(volumes) for _, volumes in rows))
        cells = [[name, *map(unit.number, volumes)] for name, volumes in rows]
        parts += [
            section("Time and volumes", switch_picture(document)),
            section(
                "GPUs", text_table(("node: GPUs, each", *COLUMNS), cells, 1), f"In {unit.name}."
            ),
            section("Sendings", text_table(_SENDINGS, sending_rows(document), 5)),
        ]
    return sections_page(title, parts)
