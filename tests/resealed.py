"""Forged files: fields changed, digest made anew."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from solver.document import RECORDED, PlanDocument, config_counts
from solver.files import Envelope, sealed
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import Result
from solver.study.store import _seal

R = TypeVar("R", bound=Envelope)
Changes = Mapping[str, object] | Callable[[Any], object]


def change(fields: Any, path: str, value: object) -> None:
    """Sets the value at a path such as "replicas.0.stages.1"; a function is asked for it."""
    *parents, last = path.split(".")
    for name in parents:
        fields = fields[int(name) if isinstance(fields, list) else name]
    key = int(last) if isinstance(fields, list) else last
    fields[key] = value(fields[key]) if callable(value) else value


def resealed(document: R, changes: Changes) -> R:
    """A copy with other values, by path, or that a function has changed; its digest fits."""
    fields = json.loads(document.model_dump_json())
    if callable(changes):
        changes(fields)
    else:
        for path, value in changes.items():
            change(fields, path, value)
    return sealed(type(document).model_validate_json(json.dumps(fields)))


def forged(document: PlanDocument, changes: Changes) -> PlanDocument:
    """The same with counts of closed configs that fit, as a forger of plans would make it."""
    changed = resealed(document, changes)
    return sealed(changed.but(configs=config_counts(changed.closed_configs)))


def said(result: Result) -> dict[str, Any]:
    """Plan, bound and log; what describes the run itself is left out."""
    fields = build_document(result, SolveOptions()).model_dump(mode="json")
    return {key: value for key, value in fields.items() if key not in (*RECORDED, "digest")}


def reshelve(path: Path, kind: str, changed: Callable[[str], str]) -> None:
    """Changes what the records of a kind hold in the study at `path`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        rows = connection.execute("select rowid, * from records where kind = ?", (kind,)).fetchall()
        for number, *names, fields, _ in rows:
            new = changed(fields)
            row = new, _seal(*names, new), number
            connection.execute("update records set fields = ?, digest = ? where rowid = ?", row)
