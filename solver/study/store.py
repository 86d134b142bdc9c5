"""A study: one SQLite file with what searches on one instance have closed, record by record.

Every record is one transaction, so that a process that is killed loses the work in hand and nothing
else; several processes of one host may share a study. SQLite's write-ahead log needs memory that
they share: a network file system, and processes on several hosts, are out of the question.

A record is what a search knows of one thing, its `key`, as the answer to one question, its
`variant`, both by digest: equal ones have equal `fields`, so the first to be kept stays. SQLite
does not see every bit that has changed on the disk, so each row has a digest of its own. Records of
no subject are notes of the study as a whole, by name: its instance, what commands were asked.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from formulations.errors import PlanError, PlannerError
from formulations.instance import Instance
from solver.files import HETPLAN_VERSION, canonical_json, digest

#: Of SQLite's header: that the file is a study, and in which format.
APPLICATION_ID, FORMAT = 0x48455450, 6
#: Seconds to wait for another process that writes.
PATIENCE_S = 10.0
#: Limits with which a study stays the same: they cut off, nothing more.
FREE_LIMITS = ("max_step_time_s", "max_cost_usd_per_step")

Kept = TypeVar("Kept")  #: what the fields of a record hold

_TABLE = """
create table if not exists records (
    subject text, kind text, key text, variant text, fields text not null, digest text not null,
    unique (subject, kind, key, variant)
)
"""


class StudyError(PlannerError):
    """A study that cannot be used, or no longer: where, what was found, what to do."""

    def __init__(self, path: Path, found: str, remedy: str) -> None:
        super().__init__(f"{path}: {found}; {remedy}")


def subject_of(instance: Instance) -> str:
    """Digest of an instance but for FREE_LIMITS, and for the steps, which multiply."""
    update = {
        "limits": instance.limits.model_copy(update=dict.fromkeys(FREE_LIMITS)),
        "objective": instance.objective.model_copy(update={"steps": None}),
    }
    return digest(instance.model_copy(update=update).model_dump(mode="json"))


@dataclass(frozen=True)
class Study:
    """What is kept of one subject: the study's own instance, or one that is derived from it.

    notes: of the study as a whole, by name, as it was opened.
    """

    path: Path
    connection: sqlite3.Connection
    instance: Instance
    notes: Mapping[str, str]

    @cached_property
    def subject(self) -> str:
        """What the records are about."""
        return subject_of(self.instance)

    def of(self, instance: Instance) -> "Study":
        """The records on another instance in the same file, such as a member of a family."""
        return replace(self, instance=instance)

    def count(self, kind: str) -> int:
        """Number of records of a kind."""
        asked = "select count(*) from records where subject = ? and kind = ?"
        return int(self.connection.execute(asked, (self.subject, kind)).fetchone()[0])

    def note(self, command: str, options: dict[str, Any]) -> None:
        """Writes down what a command was asked, for those who look at the study."""
        _put(self.connection, "replace", "", "note", command, "", canonical_json(options))


@dataclass(frozen=True)
class Shelf(Generic[Kept]):
    """The records of one kind; without a study there are none, and none are kept.

    Keys and variants are what JSON can say.
    """

    study: Study | None
    kind: str
    holds: TypeAdapter[Kept]

    def find(self, key: object, variant: object = None) -> list[Kept]:
        """What is known of a key as the answer to a variant: one record, or none."""
        return [*self._read("key = ? and variant = ?", _name(key), _name(variant))]

    def every(self, key: object = None) -> Iterator[Kept]:
        """All that is known of a key, or of any: one at a time."""
        if key is None:
            return self._read("true order by rowid")
        return self._read("key = ? order by variant", _name(key))

    def _read(self, condition: str, *values: str) -> Iterator[Kept]:
        """Raises StudyError for a row that is not as it was kept, or nothing of the kind."""
        if self.study is None:
            return
        rows = self.study.connection.execute(
            "select key, variant, fields, digest from records where subject = ? and kind = ? and "
            + condition,
            (self.study.subject, self.kind, *values),
        )
        for row in rows:
            *texts, sealed = map(str, row)
            if sealed != _seal(self.study.subject, self.kind, *texts):
                raise self._damaged("not as it was kept")
            try:
                kept = self.holds.validate_json(texts[-1])
            except ValidationError:
                raise self._damaged("unreadable") from None
            yield kept

    def _damaged(self, what: str) -> StudyError:
        assert self.study is not None
        return StudyError(
            self.study.path, f"a record of kind {self.kind}: {what}", "name a new file"
        )

    def keep(self, key: object, variant: object, kept: Kept) -> None:
        """Adds a record, in a transaction of its own."""
        if self.study is not None:
            fields = self.holds.dump_json(kept).decode()
            row = self.study.subject, self.kind, _name(key), _name(variant), fields
            _put(self.study.connection, "ignore", *row)

    def check(self, what: str, kept_ns: int | None, step_ns: Callable[[Instance], int]) -> None:
        """What is kept is simulated before it is believed; StudyError if it takes another time."""
        assert self.study is not None, "a study that holds it"
        try:
            took_ns = step_ns(self.study.instance)
        except (PlanError, LookupError):
            raise self._damaged(f"a {what} that does not fit the instance") from None
        if took_ns != kept_ns:
            raise self._damaged(f"a {what} of {kept_ns} ns takes {took_ns} ns")

    def once(self, key: object, make: Callable[[], Kept]) -> Kept:
        """What is known of a key; what `make` returns where nothing is known, which is kept."""
        for kept in self.find(key):
            return kept
        made = make()
        self.keep(key, None, made)
        return made


def _name(value: object) -> str:
    """Of a key or a variant: equal for equal ones."""
    return digest({"value": value})


def _seal(*texts: str) -> str:
    """Digest of what a row holds."""
    return digest({"row": texts})


def _put(connection: sqlite3.Connection, on_conflict: str, *row: str) -> None:
    """Writes a record with its seal; on_conflict, replace or ignore, where SQLite has one."""
    statement = f"insert or {on_conflict} into records values (?, ?, ?, ?, ?, ?)"
    connection.execute(statement, (*row, _seal(*row)))


@contextmanager
def open_study(
    path: Path, instance: Instance | None, patience_s: float = PATIENCE_S
) -> Iterator[Study]:
    """The study at `path`, a new one if there is none; None: one that exists, of any instance.

    Raises StudyError, also for what happens to it in the block: a study of another instance or
    version, a file that is no study, damaged, locked or cannot be written. What is in it stays.
    """
    if instance is None and not path.is_file():
        raise StudyError(path, "no such file", _OLD)
    with _connected(path, patience_s) as connection:
        if instance is not None:
            _set_up(connection, instance, patience_s)
        elif not _pragma(connection, "application_id"):
            raise StudyError(path, "an empty file", _OLD)
        selected = connection.execute("select * from records where subject = ''")
        rows = [list(map(str, row)) for row in selected]
        notes = {name: value for _, _, name, _, value, _ in rows}
        sealed = all(seal == _seal(*texts) for *texts, seal in rows)
        if not sealed or not {"hetplan", "name", "subject", "instance"} <= notes.keys():
            raise StudyError(path, *_DAMAGED)
        if (version := notes["hetplan"]) != HETPLAN_VERSION:
            problem = f"a study of hetplan {version}, this is {HETPLAN_VERSION}"
            raise StudyError(path, problem, _NEW)
        if instance is None:
            try:
                instance = Instance.model_validate_json(notes["instance"])
            except ValidationError:
                raise StudyError(path, *_DAMAGED) from None
        elif notes["subject"] != subject_of(instance):
            problem = f"a study of another instance, named {notes['name']}"
            raise StudyError(path, problem, f"{_NEW} for this one, named {instance.name}")
        yield Study(path, connection, instance, notes)


def study_at(path: Path | None, instance: Instance) -> AbstractContextManager[Study | None]:
    """As `open_study`; None without a path."""
    return nullcontext() if path is None else open_study(path, instance)


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"pragma {name}").fetchone()[0]


@contextmanager
def _connected(path: Path, patience_s: float) -> Iterator[sqlite3.Connection]:
    """A connection to a sound file that is a study, or empty. SQLite's errors become StudyError."""
    try:
        with closing(sqlite3.connect(path, patience_s, isolation_level=None)) as connection:
            connection.text_factory = lambda raw: raw.decode(errors="replace")
            _check_file(path, connection)
            yield connection
    except sqlite3.Error as error:
        for words, problem, remedy in _FAULTS:
            if words in str(error).lower():
                raise StudyError(path, problem, remedy) from error
        problem = f"SQLite: {error}"
        raise StudyError(path, problem, "repair it, or name a new file") from error


def _check_file(path: Path, connection: sqlite3.Connection) -> None:
    """Raises StudyError unless the file is a study in this format, or empty."""
    try:
        connection.execute("begin")  # one state of the file, whoever else writes
        application = _pragma(connection, "application_id")
        layout, check = _pragma(connection, "user_version"), _pragma(connection, "quick_check")
        tables = connection.execute("select count(*) from sqlite_schema").fetchone()[0]
        connection.execute("commit")
    except UnicodeDecodeError:  # a message of SQLite that quotes what is damaged
        check = None
    if check != "ok":
        raise StudyError(path, *_DAMAGED)
    if application != APPLICATION_ID and (application or tables):
        raise StudyError(path, "a database, but no study", _NEW)
    if application and layout != FORMAT:
        raise StudyError(path, f"a study in format {layout}, this is format {FORMAT}", _NEW)


def _write_ahead(connection: sqlite3.Connection, until_s: float) -> None:
    """Switches the file to a write-ahead log; for others SQLite does not wait by itself here."""
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until_s:
                raise
        time.sleep(0.01)


def _set_up(connection: sqlite3.Connection, instance: Instance, patience_s: float) -> None:
    """Makes an empty file a study; of several processes at once the first one does."""
    _write_ahead(connection, time.monotonic() + patience_s)
    connection.execute("pragma synchronous = normal")  # a killed process loses nothing by that
    if _pragma(connection, "application_id"):
        return
    connection.execute("begin immediate")
    if not _pragma(connection, "application_id"):
        connection.execute(_TABLE)
        description = {
            "hetplan": HETPLAN_VERSION,
            "name": instance.name,
            "subject": subject_of(instance),
            "instance": instance.model_dump_json(),
        }
        for name, value in description.items():
            _put(connection, "replace", "", "note", name, "", value)
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute(f"pragma user_version = {FORMAT}")
    connection.execute("commit")


_NEW = "name a new file"
_OLD = "name a file that --study has written"
_DAMAGED = "it is damaged", "restore it, or name a new file"

#: By words of SQLite's messages: what was found, and what to do.
_FAULTS = (
    ("locked", "another process has locked it", "end that one, or wait, and run this again"),
    ("full", "the disk is full", "make room and run this again: what was closed is kept"),
    ("disk i/o", "it cannot be written", "make room and run this again: what was closed is kept"),
    ("readonly", "it is write-protected", "make it writable, or name a file in another folder"),
    ("unable to open", "it cannot be opened", "name a file in a folder you can write to"),
    ("malformed", *_DAMAGED),
    ("not a database", "it is no study, or damaged", "restore it, or name a new file"),
)
