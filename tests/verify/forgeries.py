"""Forged files: fields changed, sealed anew, and what the verifier says."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import chain, islice, zip_longest
from pathlib import Path
from random import Random
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from formulations.instance.instance import Minimize
from formulations.instance.search import ScheduleName
from formulations.instance.workload import Precision, Recompute
from solver.document import RECORDED, PlanDocument, config_counts
from solver.files import Envelope, sealed
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import Proof, Reason, Result, Status, Termination
from solver.study.store import _seal
from solver.verify import Verification
from tests.recorded import digest

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


#: What no check asks for.
TOLD = ("digest", "runtime_s", "history", "hetplan_version", "method", "seed")
#: Words that may replace each other, so that a changed word is still one that can be read.
WORDS: tuple[tuple[str, ...], ...] = (
    *(tuple(map(str, words)) for words in (Status, Termination)),
    *map(get_args, (Reason, Proof, Recompute, ScheduleName, Precision, Minimize)),
    ("even", "uneven"),
    ("best", "dominated", "infeasible", "open"),
    ("megatron", "any"),
)


def other_values(value: Any) -> list[Any]:
    """Of the same kind, near and far; of a list those with an entry less, more, or elsewhere."""
    if isinstance(value, list):
        shorter = [value[:i] + value[i + 1 :] for i in range(len(value))]
        longer = [[*value[: i + 1], *value[i:]] for i in range(len(value))]
        return [*shorter, *longer, value[::-1]]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, 2 * value + 3, -value - 1, None]
    if isinstance(value, float):
        near = [value * (1 + 1e-6) + 1e-9, value * (1 - 1e-6)]
        return [*near, 2 * value + 1.0, 1000 * value, -value - 1.0, None]
    if isinstance(value, str):
        return [value + "x", "", None, *chain(*(words for words in WORDS if value in words))]
    return [1, 0.5, "x"]


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All fields that are no objects, with the place of each."""
    if not isinstance(value, dict) and path:
        yield path, value
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, str(name)))


def changes(document: Envelope) -> dict[str, list[tuple[str, Any]]]:
    """By field, without numbers of entries: its places, in any order, with other values.

    The nearest values of all places come first.
    """
    places: dict[str, list[list[tuple[str, Any]]]] = {}
    for path, old in leaves(document.model_dump(mode="json")):
        field = ".".join(name for name in path if not name.isdigit())
        others = [(".".join(path), new) for new in other_values(old)]
        places.setdefault(field, []).append(others)
    for field, entries in places.items():
        Random(field).shuffle(entries)
    return {
        field: [change for nth in zip_longest(*entries) for change in nth if change is not None]
        for field, entries in places.items()
    }


def forgeries(
    document: R, entries: list[tuple[str, Any]], seal: Callable[[R, Changes], R] = resealed
) -> Iterator[R]:
    """The files of changes that can be read and say something else, under a digest that fits."""
    for change in entries:
        try:
            forged = seal(document, dict([change]))
        except ValidationError:
            continue
        if forged.but(digest="") != document.but(digest=""):
            yield forged


def judged(
    name: str,
    document: R,
    verify: Callable[[R], Verification],
    fields: str,
    number: int = 2,
    seal: Callable[[R, Changes], R] = resealed,
) -> dict[str, str]:
    """What is said of the file, and of so many forgeries of each field that begins like `fields`.

    By name, field and number: the fields that are named, and a digest of all that is said.
    """
    verdicts = {name: _verdict(verify(document))}
    for field, entries in changes(document).items():
        if field.startswith(tuple(fields.split())) and not field.startswith(TOLD):
            for n, forged in enumerate(islice(forgeries(document, entries, seal), number)):
                verdicts[f"{name}, {field} {n}"] = _verdict(verify(forged))
    return verdicts


def _verdict(verification: Verification) -> str:
    """At most three of the fields that are refused; all lines as a digest."""
    named = list(dict.fromkeys(line.partition(": found")[0] for line in verification.problems))
    if not named:
        named = ["proved" if verification.complete else "accepted"]
    lines = verification.problems or (*verification.checked, *verification.reservations)
    without_digests = [re.sub("[0-9a-f]{64}", "", line) for line in lines]
    return f"{'; '.join(named[:3])}: {digest(without_digests)}"
