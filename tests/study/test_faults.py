"""Studies that cannot be used: one line that says why, and what is in them stays."""

import json
import random
import resource
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_instance
from solver.options import SolveOptions
from solver.search.driver import SearchOverview, search_overview, solve
from solver.search.incumbents import STARTS
from solver.study import store
from solver.study.store import StudyError, open_study, read_study
from tests import command_line
from tests.said import said
from tests.seeds import few_and_many
from tests.small_instances import random_instance

INSTANCES = Path(__file__).resolve().parents[2] / "instances"
TINY = random_instance(0)
SMALL = load_instance(INSTANCES / "hetero_small.yaml")
OTHER = load_instance(INSTANCES / "two_zones.yaml")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "study.db"
    with open_study(path, SMALL) as study:
        solve(SMALL, None, None, study)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, whole: bytes) -> Path:
    path = tmp_path / "study.db"
    path.write_bytes(whole)
    return path


def refused(path: Path, instance: Instance = SMALL) -> str:
    """What is said of the study of another state."""
    with pytest.raises(StudyError) as error, open_study(path, instance, patience_s=0.1) as study:
        study.keep("kind", "key", "", "")
    assert error.value.exit_code == 2
    assert str(error.value).isprintable()
    return str(error.value).removeprefix(f"{path}: ")


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def test_studies_that_are_not_ours(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that says why, and nothing is written."""
    before = path.read_bytes()
    assert refused(path, OTHER).startswith("a study of another instance, named hetero_small; ")
    with monkeypatch.context() as patch:  # another version may have closed things wrongly
        patch.setattr(store, "HETPLAN_VERSION", "9.9.9")
        assert refused(path).startswith("a study of hetplan 0.1.0, this is 9.9.9; name a new file")
    assert path.read_bytes() == before
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("begin exclusive")
        assert refused(path).startswith("another process has locked it")
    path.write_bytes(before[: len(before) // 2])
    assert refused(path) == "it is damaged; restore it, or name a new file"
    path.write_bytes(before)
    change(path, "pragma user_version = 9")
    assert refused(path) == "a study in format 9, this is format 4; name a new file"
    change(tmp_path / "other.db", "create table t (x)")
    assert refused(tmp_path / "other.db") == "a database, but no study; name a new file"
    text = tmp_path / "notes.txt"
    text.write_text("notes" * 1000)
    assert refused(text) == "it is no study, or damaged; restore it, or name a new file"
    assert text.read_text() == "notes" * 1000


def test_record_that_was_changed(path: Path) -> None:
    """A plan is simulated before it is believed."""
    with open_study(path, SMALL) as study:
        kept = [record for record in study.every(STARTS) if record.fields.startswith("[")]
    change(path, f"delete from records where kind = '{STARTS}'")
    with open_study(path, SMALL) as study:
        for name, variant, fields in kept:
            plan, step_ns = json.loads(fields)
            study.keep(STARTS, name, variant, json.dumps([plan, step_ns - 1]))
        with pytest.raises(StudyError, match=r"plan of \d+ ns takes"):
            solve(SMALL, None, None, study)


def opened(path: Path, instance: Instance, **options: Any) -> dict[str, Any] | str:
    """What a search with a study says, or why it refuses the study, in one line."""
    try:
        with open_study(path, instance, patience_s=0.1) as study:
            return said(solve(instance, SolveOptions(**options), None, study))
    except StudyError as error:
        return str(error)


def shown(path: Path) -> SearchOverview | str | None:
    try:
        with read_study(path, patience_s=0.1) as (study, notes):
            return search_overview(study, notes)
    except StudyError as error:
        return str(error)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"zone_link"', b'"zone#link"'),
        (b'"max_step_time_s"', b'"max\x13step_time_s"'),
        (b"hetplan0.1.0", b"hetplaN0.1.0"),
        (b"tablerecordsrecords", b"table\xd2\xc9cordsrecords"),
        (b'"cut_short":false', b'"cut_short":true '),
    ],
)
def test_bug_damaged_studies_were_tracebacks(
    before: bytes, after: bytes, path: Path, whole: bytes
) -> None:
    """Or read without complaint: fields, a name, the tables, an answer."""
    assert before in whole
    path.write_bytes(whole.replace(before, after))
    for line in (opened(path, SMALL), shown(path)):
        assert isinstance(line, str)
        assert line.isprintable()
        assert line.endswith("name a new file")


def damaged(whole: bytes, rng: random.Random) -> bytes:
    """A file some of whose bits, bytes or blocks have changed, or that is cut off."""
    data, first, length = bytearray(whole), rng.randrange(len(whole)), rng.choice([16, 512, 4096])
    match rng.randrange(4):
        case 0:
            data[first] ^= 1 << rng.randrange(8)
        case 1:
            for place in rng.sample(range(len(data)), rng.choice([1, 3, 10])):
                data[place] = rng.randrange(256)
        case 2:
            data[first : first + length] = bytes(len(data[first : first + length]))
        case _:
            del data[first:]
    return bytes(data)


@pytest.mark.parametrize("seeds", few_and_many(range(300), 30))
def test_damaged_study_is_refused_or_says_the_same(seeds: Sequence[int], tmp_path: Path) -> None:
    """Never a traceback, never another plan: what SQLite does not see, digests do."""
    path = tmp_path / "study.db"
    fresh = opened(path, TINY)
    whole, overview = path.read_bytes(), shown(path)
    assert not isinstance(fresh, str)
    for seed in seeds:
        changed = damaged(whole, random.Random(seed))
        path.write_bytes(changed)
        view = shown(path)
        assert view == overview or (isinstance(view, str | None) and str(view).isprintable()), seed
        for limit_s in (None, 60.0):
            path.write_bytes(changed)
            result = opened(path, TINY, time_limit_s=limit_s)
            assert result == fresh or (isinstance(result, str) and result.isprintable()), seed


@pytest.mark.parametrize("by", ["sqlite", "system"])
def test_study_without_room_is_refused_and_goes_on_with_more(by: str, tmp_path: Path) -> None:
    """By SQLite's own limit of pages; by the system's, which hits the write-ahead log first."""
    path, before = tmp_path / "study.db", resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        found = pytest.raises(StudyError, match="make room and run this again")
        if by == "system":
            resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
        with found, open_study(path, SMALL) as study:
            if by == "sqlite":
                study._connection.execute("pragma max_page_count = 8")
            solve(SMALL, None, None, study)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with open_study(path, SMALL) as study:
        assert any(study.every("start")) or by == "system"
        assert solve(SMALL, None, None, study).gap == 0.0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("show --study none.db", "none.db: no such file; name a file that --study has"),
        ("solve SMALL --study a/b.db", "a/b.db: it cannot be opened; name a file in a"),
        ("solve SMALL --study .", ".: it cannot be opened; name a file in a folder"),
        ("solve SMALL --study x.db --method milp", "--study keeps what --method"),
    ],
)
def test_command_line_says_why(
    words: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = str(INSTANCES / "hetero_small.yaml")
    said = command_line.refused(*words.replace("SMALL", small).split())
    assert said.startswith(f"error: {line}")
