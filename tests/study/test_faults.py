"""Studies that cannot be used: one line that says why, and what is in them stays."""

import json
import random
import resource
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_instance
from solver.options import SolveOptions
from solver.search.driver import SearchOverview, search_overview, solve
from solver.search.incumbents import STARTS
from solver.study import store
from solver.study.store import Study, StudyError, open_study, read_study
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
    """A finished study."""
    path = tmp_path_factory.mktemp("whole") / "study.db"
    with open_study(path, SMALL) as study:
        solve(SMALL, None, None, study)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, whole: bytes) -> Path:
    """A copy of it."""
    path = tmp_path / "study.db"
    path.write_bytes(whole)
    return path


def refused(path: Path) -> str:
    """What is said of the study of another state."""
    with pytest.raises(StudyError) as error, open_study(path, SMALL, patience_s=0.1):
        pass
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix(f"{path}: ")


def change(path: Path, statement: str) -> None:
    """Changes the file as its writer never does."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


def test_study_of_another_instance(path: Path) -> None:
    """Its name is told, and nothing is written."""
    before = path.read_bytes()
    found = pytest.raises(StudyError, match="another instance, named hetero_small")
    with found, open_study(path, OTHER):
        pass
    assert path.read_bytes() == before


def test_study_of_another_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another version has closed it may have closed wrongly."""
    monkeypatch.setattr(store, "HETPLAN_VERSION", "9.9.9")
    assert refused(path).startswith("a study of hetplan 0.1.0, this is 9.9.9; name a new file")


def test_study_in_another_format(path: Path) -> None:
    """A later layout of the tables is not guessed at."""
    change(path, "pragma user_version = 9")
    assert refused(path) == "a study in format 9, this is format 4; name a new file"


def test_another_database(tmp_path: Path) -> None:
    """A file of some other program is left alone."""
    path = tmp_path / "other.db"
    change(path, "create table t (x)")
    assert refused(path) == "a database, but no study; name a new file"


def test_no_database(tmp_path: Path) -> None:
    """Nor is a text overwritten."""
    path = tmp_path / "notes.txt"
    path.write_text("notes" * 1000)
    assert refused(path) == "it is no study, or damaged; restore it, or name a new file"
    assert path.read_text() == "notes" * 1000


@pytest.mark.parametrize("kept", [0.3, 0.9])
def test_truncated_study(path: Path, whole: bytes, kept: float) -> None:
    """It is found to be damaged, and whole again when it is restored."""
    path.write_bytes(whole[: int(kept * len(whole))])
    assert refused(path) == "it is damaged; restore it, or name a new file"
    path.write_bytes(whole)
    with open_study(path, SMALL) as study:
        assert solve(SMALL, None, None, study).gap == 0.0


def test_locked_study(path: Path) -> None:
    """Another process that never lets go of it is not waited for for ever."""
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin exclusive")
    found = pytest.raises(StudyError, match="another process has locked it")
    with found, open_study(path, SMALL, patience_s=0.1) as study:
        study.keep("kind", "key", "", "")
    holder.close()


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


def printable_line(error: StudyError) -> str:
    """What is told of an error."""
    assert str(error).isprintable()
    return str(error)


def opened(path: Path, instance: Instance, **options: Any) -> dict[str, Any] | str:
    """What a search with a study says, or why it refuses the study, in one line."""
    try:
        with open_study(path, instance, patience_s=0.1) as study:
            return said(solve(instance, SolveOptions(**options), None, study))
    except StudyError as error:
        return printable_line(error)


def shown(path: Path) -> SearchOverview | str | None:
    """The same of `study show`."""
    try:
        with read_study(path, patience_s=0.1) as (study, notes):
            return search_overview(study, notes)
    except StudyError as error:
        return printable_line(error)


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
        assert isinstance(view, str | None) or view == overview, seed
        for limit_s in (None, 60.0):
            path.write_bytes(changed)
            result = opened(path, TINY, time_limit_s=limit_s)
            assert isinstance(result, str) or result == fresh, seed


def fills_up(limit: Callable[[Study], None], path: Path) -> None:
    """A search whose study has no more room ends with a line."""
    found = pytest.raises(StudyError, match="make room and run this again")
    with found, open_study(path, SMALL) as study:
        limit(study)
        solve(SMALL, None, None, study)


def test_full_disk(tmp_path: Path) -> None:
    """By SQLite's own limit of pages."""
    path = tmp_path / "study.db"

    def few_pages(study: Study) -> None:
        study._connection.execute("pragma max_page_count = 8")

    fills_up(few_pages, path)
    with open_study(path, SMALL) as study:
        assert any(study.every("start"))
        assert solve(SMALL, None, None, study).gap == 0.0


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of this process may grow beyond 40 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_file_that_must_not_grow(tmp_path: Path, small_files: None) -> None:
    """By the system's limit, which hits the write-ahead log first."""
    path = tmp_path / "study.db"
    fills_up(lambda study: None, path)
    resource.setrlimit(resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE)[1:] * 2)
    with open_study(path, SMALL) as study:
        assert solve(SMALL, None, None, study).gap == 0.0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["show", "--study", "none.db"], "none.db: no such file; name a file that --study has"),
        (["solve", "SMALL", "--study", "a/b.db"], "a/b.db: it cannot be opened; name a file in a"),
        (["solve", "SMALL", "--study", "."], ".: it cannot be opened; name a file in a folder"),
        (["solve", "SMALL", "--study", "x.db", "--method", "milp"], "--study keeps what --method"),
    ],
)
def test_command_line_says_why(
    arguments: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, exit code 2."""
    monkeypatch.chdir(tmp_path)
    words = [
        str(INSTANCES / "hetero_small.yaml") if word == "SMALL" else word for word in arguments
    ]
    assert command_line.refused(*words).startswith(f"error: {line}")
