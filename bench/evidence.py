"""Measured steps of any folder of the reference's layout, told by what rows have, not by names.

A row of a JSON or CSV file is of the first kind all of whose fields it has. Rows that no plan of
ours is the run of keep their reason; files without a row of any kind are named.
"""

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.accuracy_rows import automodel, bridge, flagperf, simumax, torchtitan
from bench.gpt_rows import amp, megatron_2021, megatron_2022, vtrain
from bench.runs import Case, NotExpressible, Row, Run
from formulations.errors import PlannerError


@dataclass(frozen=True)
class Kind:
    """Rows of one source: the fields that tell them, and what they are as runs."""

    source: str
    fields: frozenset[str]
    adapter: Callable[[Row], tuple[Case, Run]]


#: What is more particular first.
KINDS = (
    Kind("vTrain", frozenset({"iteration time (ms)"}), vtrain),
    Kind("SimuMax", frozenset({"measured_step_ms"}), simumax),
    Kind("AMP", frozenset({"amp_predicted_s", "measured_s"}), amp),
    Kind("Megatron-Bridge", frozenset({"tokens_per_s_per_gpu", "system"}), bridge),
    Kind("NeMo AutoModel", frozenset({"step_s", "fsdp"}), automodel),
    Kind("torchtitan", frozenset({"tokens_per_s_per_gpu", "fsdp", "gpu"}), torchtitan),
    Kind("FlagPerf", frozenset({"tokens_per_s_per_gpu", "gpu"}), flagperf),
    Kind("Megatron-LM 2021", frozenset({"teraflops_per_gpu"}), megatron_2021),
    Kind("Megatron-LM 2022", frozenset({"seconds", "mode", "config"}), megatron_2022),
)


@dataclass(frozen=True)
class Evidence:
    """All rows of a folder, and the files that hold none."""

    cases: tuple[Case, ...]
    unread: tuple[str, ...]


def documents(folder: Path) -> Iterator[tuple[Path, Any]]:
    """Every JSON file, and every CSV file as its rows; a file that is neither is left out."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() == ".csv":
            with path.open(newline="", encoding="utf-8") as lines:
                yield path, list(csv.DictReader(lines))
        elif path.suffix.lower() == ".json":
            try:
                yield path, json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                yield path, None


def rows_of(document: Any) -> Iterator[Row]:
    """The rows of a file: under `rows` or as a list, of mappings or in `columns`; or `cases`."""
    shared = document if isinstance(document, dict) else {}
    rows = shared.get("rows") if isinstance(document, dict) else document
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, list) and len(row) == len(shared.get("columns") or []):
            yield dict(zip(shared["columns"], row, strict=True))
        elif isinstance(row, dict):
            model = {"model": shared["model"]} if "model" in shared else {}  # AMP: of all rows
            yield model | row
    cases = shared.get("cases")
    for name, case in cases.items() if isinstance(cases, dict) else ():
        usual = {"case": name, "config": case.get("config"), "memory_gib": case.get("memory_gib")}
        usual |= {field: shared.get(field) for field in ("sequence_length", "vocabulary")}
        for mode, seconds in (case.get("iteration_s") or {}).items():
            yield usual | {"mode": mode, "seconds": seconds}


def kind_of(row: Row) -> Kind | None:
    """What a row is; None for a row of no kind."""
    return next((kind for kind in KINDS if kind.fields <= row.keys()), None)


def rows_from(folder: Path, source: str) -> Iterator[Row]:
    """The rows of one source, in whatever file they are."""
    for _, document in documents(folder):
        for row in rows_of(document):
            kind = kind_of(row)
            if kind is not None and kind.source == source:
                yield row


def read(folder: Path) -> Evidence:
    """Every row of every file."""
    cases, unread = list[Case](), list[str]()
    for path, document in documents(folder):
        pairs = [(row, kind) for row in rows_of(document) if (kind := kind_of(row)) is not None]
        cases += [case_of(row, kind) for row, kind in pairs]
        if not pairs:
            unread.append(str(path.relative_to(folder)))
    return Evidence(tuple(cases), tuple(unread))


def case_of(row: Row, kind: Kind) -> Case:
    """The row with its plan or why it has none."""
    model, system = str(row.get("model", "")), str(row.get("system", ""))
    text = ", ".join(f"{k} {v}" for k, v in row.items() if isinstance(v, int | float | str))[:120]
    case = Case(kind.source, "", model, text, system, "", None)
    try:
        case, run = kind.adapter(row)
        if case.measured_s is None:
            raise NotExpressible("no step measured: it did not run")
        if not case.measured_s > 0:
            raise NotExpressible("a measured step that is not above 0")
        return replace(case, plan=run.planned())
    except NotExpressible as reason:
        return replace(case, why_not=str(reason))
    except KeyError as field:
        return replace(case, why_not=f"a row without {field}")
    except (PlannerError, TypeError, ValueError, ZeroDivisionError) as error:
        return replace(case, why_not=f"{type(error).__name__}: {str(error).splitlines()[0]}")
