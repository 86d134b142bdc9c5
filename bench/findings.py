"""Which published findings on large-scale training come out of our cost model and simulator.

    python -m bench findings [--out RECORDS] [--picture FILE]

Every finding is a study (`claims`): plans of instances in bench/findings, as Megatron-LM would
launch them, and what must hold of their steps. What does not come out stays in, with the reason.
Table 1 of Narayanan et al. 2021 needs the reference folder. Records, one per study with all plans,
go to bench/results/findings.jsonl, the picture to bench/results/findings.svg. Findings that other
benchmarks store figures of are judged by these (`claims_recorded`). The table of bench/README.md is
made of the records.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from rich.table import Table

from bench import claims_cheng, claims_megatron, claims_recorded
from bench.claims import Outcome, Study, Values, outcome
from bench.claims_recorded import Recorded
from bench.command import command, wide_console
from bench.records import RESULTS, ROOT, append, record, reference
from solver.report.chart import Draw, picture

README = ROOT / "bench" / "README.md"
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
    return _told(study, values, parts, study.fitted) | {"plans": [_plan(one) for one in found]}


def judged(finding: Recorded) -> Figures:
    """The same of a finding whose figures other benchmarks have stored: no plan is its own."""
    return _told(finding, finding.values, finding.parts, fitted=False) | {"plans": []}


def _told(
    finding: Study | Recorded, values: Values, parts: Mapping[str, bool], fitted: bool
) -> Figures:
    return {
        "study": finding.name,
        "claim": finding.claim,
        "source": finding.source,
        "parts": parts,
        "comes_out": verdict(parts, fitted),
        "note": finding.note,
        "axis": finding.axis,
        "values": values,
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
    result = Table(*COLUMNS)
    for row in rows(found):
        result.add_row(*row)
    return result


COLUMNS = ("finding", "source", "comes out", "why")


def rows(found: Iterable[Figures]) -> Iterator[tuple[str, ...]]:
    """Per finding what `COLUMNS` say, with the parts that do not come out."""
    for one in found:
        missing = ", ".join(name for name, holds in one["parts"].items() if not holds)
        comes_out = one["comes_out"] + (f"; not: {missing}" if missing else "")
        yield one["claim"], one["source"], comes_out, one["note"]


def with_table(text: str, found: Iterable[Figures]) -> str:
    """The text of bench/README.md with these findings in its table."""
    head = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|\n"
    before, _, rest = text.partition(head)
    after = rest.partition("\n\n")[2]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows(found))
    return f"{before}{head}{lines}\n\n{after}"


def main() -> None:
    """Runs the benchmark."""
    parser = command("findings")
    parser.add_argument("--picture", type=Path, default=RESULTS / "findings.svg")
    chosen = parser.parse_args()
    simulated = [figures(study) for study in studies(reference())]
    chosen.picture.write_text(panels_picture(simulated), encoding="utf-8")
    found = simulated + [judged(claim) for claim in claims_recorded.claims(RESULTS)]
    append(chosen.out, [record("findings", one) for one in found])
    README.write_text(with_table(README.read_text(encoding="utf-8"), found), encoding="utf-8")
    wide_console().print(table(found))
