"""Which published findings on large-scale training come out of our cost model and simulator.

    python -m bench findings [--out RECORDS] [--picture FILE]

Every finding is a study (`claims`): plans of instances in bench/findings, as Megatron-LM would
launch them, and what must hold of their steps. What does not come out stays in, with the reason.
Table 1 of Narayanan et al. 2021 needs the reference folder. Records, one per study with all plans,
go to bench/results/findings.jsonl, the picture to bench/results/findings.svg.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from bench import claims_cheng, claims_megatron
from bench.bars import Bars, bar_picture
from bench.claims import Outcome, Study, outcome
from bench.command import command, wide_console
from bench.records import RESULTS, append, record, reference

Figures = dict[str, Any]


def studies(folder: Path) -> list[Study]:
    """All studies; table 1 only where the reference folder is."""
    found = claims_megatron.studies()
    if folder.is_dir():
        found.append(claims_megatron.rows(folder))
    return found + claims_cheng.studies()


def figures(study: Study) -> Figures:
    """The outcome of a study, with its plans."""
    found = [outcome(point) for point in study.points]
    values = study.figures(found)
    parts = study.judge(values)
    return {
        "study": study.name,
        "claim": study.claim,
        "source": study.source,
        "parts": parts,
        "comes_out": verdict(parts, study.fitted),
        "note": study.note,
        "axis": study.axis,
        "values": values,
        "plans": [_plan(one) for one in found],
    }


def verdict(parts: Mapping[str, bool], fitted: bool) -> str:
    """Whether all parts, some or none come out; said of fitted ones, which show less."""
    if all(parts.values()):
        return "yes, fitted" if fitted else "yes"
    return "partly" if any(parts.values()) else "no"


def _plan(one: Outcome) -> Figures:
    simple = {k: v for k, v in one.point.changes.items() if isinstance(v, int | float | tuple)}
    return {
        "series": one.point.series,
        "label": one.point.label,
        "file": one.point.file,
        "shape": dict(one.point.config),
        "changes": simple,
        "instance_sha256": one.instance_sha256,
        "step_s": one.step_s,
        "memory_bytes": one.memory_bytes,
        "teraflops_per_gpu": one.teraflops,
    }


def picture(found: Sequence[Figures]) -> str:
    """A panel per study."""
    panels = [
        Bars(
            f"{one['study']}, comes out: {one['comes_out']}",
            f"{one['source'].partition(',')[0]}; {one['axis']}",
            one["values"],
        )
        for one in found
    ]
    return bar_picture("Published findings, simulated", panels)


def table(found: Sequence[Figures]) -> Table:
    """One line per study."""
    result = Table("finding", "source", "comes out", "note")
    for one in found:
        parts = [f"{'yes' if holds else 'no'}: {name}" for name, holds in one["parts"].items()]
        result.add_row(
            one["claim"], one["source"], "\n".join([one["comes_out"], *parts]), one["note"]
        )
    return result


def main() -> None:
    """Runs the benchmark."""
    parser = command("findings")
    parser.add_argument("--picture", type=Path, default=RESULTS / "findings.svg")
    chosen = parser.parse_args()
    found = [figures(study) for study in studies(reference())]
    append(chosen.out, [record("findings", one) for one in found])
    chosen.picture.write_text(picture(found), encoding="utf-8")
    console = wide_console()
    console.print(table(found))
