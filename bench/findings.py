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

from matplotlib.axes import Axes
from rich.table import Table

from bench import claims_cheng, claims_megatron
from bench.claims import Outcome, Study, outcome
from bench.command import command, wide_console
from bench.records import RESULTS, append, record, reference
from solver.report.chart import Draw, picture

_GROUP = 0.75  # width of a group of bars; the next one begins at 1


def bars(finding: "Figures") -> Draw:
    """One panel: a group of bars per label, a bar per series that has a value there."""
    values: Mapping[str, Mapping[str, float]] = finding["values"]
    labels = list(dict.fromkeys(label for series in values.values() for label in series))

    def draw(axes: Axes) -> None:
        width = _GROUP / len(values)
        for i, (name, series) in enumerate(values.items()):
            places = [labels.index(label) + width * (i + 0.5) - _GROUP / 2 for label in series]
            axes.bar(places, list(series.values()), width, label=name)
        axes.set_xticks(range(len(labels)), labels)
        axes.grid(visible=False, axis="x")
        title = f"{finding['study']}, comes out: {finding['comes_out']}"
        of = f"{finding['source'].partition(',')[0]}; {finding['axis']}"
        axes.set_title(f"{title}\n{of}", loc="left", fontsize=9)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))

    return draw


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


def panels_picture(found: Sequence[Figures]) -> str:
    """A panel per study."""
    title = "Published findings, simulated"
    return picture(title, *map(bars, found), columns=2, size=(6.4, 2.6))


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
    chosen.picture.write_text(panels_picture(found), encoding="utf-8")
    console = wide_console()
    console.print(table(found))
