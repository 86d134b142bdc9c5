"""Whether four of five measured steps lie within the error bar of their prediction.

    python -m bench coverage [--out RECORDS]

Every row of the folder that HETPLAN_REFERENCE names whose run is a plan of ours. By source and kind
of evidence: the signed mean and the mean size of log(predicted / measured), the mean standard
deviation that `solver.uncertainty` states, and the share of rows within its bar of 80 %. Its
deviations are round figures chosen on the given half of the rows, so these are not judged unseen.
"""

from collections.abc import Iterable
from math import log
from statistics import fmean
from typing import Any

from bench.command import command, new_table, wide_console
from bench.evidence import read
from bench.records import append, record, reference
from bench.runs import Case
from solver.uncertainty import BAR, step_estimate


def coverage(cases: Iterable[Case]) -> list[dict[str, Any]]:
    """One line per source and kind."""
    lines: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for case in cases:
        if case.plan is not None and case.measured_s is not None:
            estimate = step_estimate(*case.plan)
            error = estimate.log_s - log(case.measured_s)
            lines.setdefault((case.source, case.kind), []).append((error, estimate.deviation))
    return [
        {
            "source": source,
            "kind": kind,
            "rows": len(pairs),
            "signed": fmean(error for error, _ in pairs),
            "size": fmean(abs(error) for error, _ in pairs),
            "deviation": fmean(deviation for _, deviation in pairs),
            "covered": fmean(abs(error) <= BAR * deviation for error, deviation in pairs),
        }
        for (source, kind), pairs in sorted(lines.items())
    ]


def main() -> None:
    """Runs the benchmark."""
    chosen = command("coverage").parse_args()
    lines = coverage(read(reference()).cases)
    append(chosen.out, [record("coverage", {"lines": lines})])
    columns = ("rows", "signed", "mean size", "deviation", "within 80 % bar")
    table = new_table(("source", "kind"), columns)
    for line in lines:
        figures = (f"{line[name]:+.3f}" for name in ("signed", "size", "deviation"))
        covered = f"{100 * line['covered']:.0f} %"
        table.add_row(line["source"], line["kind"], str(line["rows"]), *figures, covered)
    wide_console().print(table)
