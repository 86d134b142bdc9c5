"""A study: what was closed before a kill stays closed, and nothing else changes.

One that cannot be used is refused in one line that says why, and what is in it stays.
"""

import json
import math
import multiprocessing
import os
import random
import resource
import signal
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from formulations.instance import Instance
from formulations.instance.load import load_instance
from solver.graph.problem import Intervals
from solver.options import SolveOptions
from solver.result import Result, Status
from solver.search import plan_search, speculation
from solver.search.driver import search_overview, solve
from solver.search.enumeration import enumerate_config
from solver.study import store
from solver.study.store import Shelf, StudyError, open_study, study_at
from tests.conftest import ROOT, present
from tests.recorded import as_recorded
from tests.seeds import each_of, few_and_many
from tests.small_instances import random_instance
from tests.verify.forgeries import reshelve, said

SMALL = load_instance(ROOT / "instances" / "hetero_small.yaml").but(search={"micro_batch": (4,)})
NUMBER = TypeAdapter(int)
FORK = multiprocessing.get_context("fork")


def solved(path: Path, instance: Instance = SMALL, **options: Any) -> Result:
    with open_study(path, instance, patience_s=0.1 if instance is not SMALL else 10.0) as study:
        return solve(instance, SolveOptions(**options), None, study)


def overview(path: Path) -> Any:
    with open_study(path, None, patience_s=0.1) as study:
        return search_overview(study)


# What was closed stays closed


@pytest.mark.parametrize(
    ("workers", "kills"), [(2, 1), pytest.param(1, 40, marks=pytest.mark.slow)]
)
def test_killed_at_random_moments_loses_one_config_at_most(
    tmp_path: Path, workers: int, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed after a kill, a search asks for one config per worker again, and says the same.

    Once it has ended it asks nothing, and nothing is shown as open.
    """
    asked = tmp_path / "asked"  # a byte for each time that anyone asks the engine, which is slow

    def slow(intervals: Intervals, *arguments: Any) -> Any:
        with asked.open("ab") as file:
            file.write(b".")
        time.sleep(0.005)
        return enumerate_config(intervals, *arguments)

    monkeypatch.setattr(plan_search, "enumerate_config", slow)
    monkeypatch.setattr(speculation, "ALONE_S", 0.0)
    began_s, path, fresh = time.monotonic(), tmp_path / "whole.db", said(solve(SMALL))
    asked.unlink()
    assert said(solved(path)) == fresh
    num_asked, length_s = asked.stat().st_size, time.monotonic() - began_s
    result, moments = solved(path), random.Random(workers)
    assert (said(result), asked.stat().st_size) == (fresh, num_asked)
    shown = overview(path)
    assert (shown.open, shown.closed) == ((), len(result.log.configs))
    told = shown.result
    assert (told.objective, told.bound, told.gap) == (result.objective, result.bound, 0.0)
    for kill in range(kills):
        asked.write_bytes(b"")
        path = tmp_path / f"{kill}.db"
        process = FORK.Process(target=solved, args=(path,), kwargs={"workers": workers})
        process.start()
        time.sleep(moments.uniform(0.0, length_s / 2))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        assert said(solved(path)) == fresh
        assert asked.stat().st_size <= num_asked + workers


def test_two_processes_on_one_study(tmp_path: Path) -> None:
    """Both write, from its first moment on; the study is sound, and gives the same plan."""
    path = tmp_path / "study.db"
    both = [FORK.Process(target=solved, args=(path,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    assert said(solved(path)) == said(solve(SMALL))


def test_bug_recalled_plans_broke_the_limits_of_today(tmp_path: Path) -> None:
    """With a time limit all that is known is offered; what is beyond a limit stays out.

    Another space is another instance.
    """
    path, instance = tmp_path / "study.db", random_instance(0)
    best_ns = present(solved(path, instance).step_time_ns)
    for limit in ({"max_step_time_s": best_ns / 2e9}, {"max_cost_usd_per_step": 1e-12}):
        limited = instance.but(limits=limit)
        assert solved(path, limited, time_limit_s=60.0).status is Status.INFEASIBLE
        assert overview(path).result.step_time_ns is None
        assert solved(path, instance, time_limit_s=60.0).step_time_ns == best_ns
        assert overview(path).result.step_time_ns == best_ns
    with pytest.raises(StudyError, match="a study of another instance"):
        solved(path, instance.but(search={"micro_batch": (1,)}))


@pytest.mark.parametrize("seed", [21, 26])
def test_bug_configs_closed_to_a_larger_gap_ended_show_in_a_traceback(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed within 30 %, then asked for the optimum: what the gap has closed is open again."""
    path, instance = tmp_path / "study.db", random_instance(seed)
    assert present(solved(path, instance, gap=0.3).gap) > 0.29
    with monkeypatch.context() as patch:
        patch.setattr(plan_search.PlanSearch, "run", lambda search: None)
        solved(path, instance)
    shown = overview(path)
    assert shown.open
    assert shown.result.status is Status.FEASIBLE
    solved(path, instance)
    assert (overview(path).open, overview(path).result.gap) == ((), 0.0)


@each_of(range(20), 20)
def test_study_of_any_limits_gives_what_a_fresh_search_gives(seed: int, tmp_path: Path) -> None:
    rng, instance, path = random.Random(seed), random_instance(seed), tmp_path / f"{seed}.db"
    best_ns = solve(instance).step_time_ns
    for _ in range(3 if best_ns else 0):
        limits, longest_s = dict[str, float](), (best_ns or 1) / 1e9
        if rng.random() < 0.7:
            limits["max_step_time_s"] = longest_s * rng.choice([0.5, 1, 1.001, 1.3, 2])
        if rng.random() < 0.4:
            dearest = longest_s / 3600 * rng.choice([0.5, 1, 2, 5, 20])
            limits["max_cost_usd_per_step"] = dearest
        limited = instance.but(limits=limits)
        gap, limit_s = rng.choice([0.0, 0.0, 0.1]), rng.choice([None, 60.0])
        kept = solved(path, limited, gap=gap, time_limit_s=limit_s)
        fresh = solve(limited, SolveOptions(gap=0.0))
        assert kept.status is fresh.status, seed
        if gap == 0.0:
            assert (kept.step_time_ns, kept.bound) == (fresh.step_time_ns, fresh.bound), seed
        elif kept.bound is not None:
            assert kept.bound <= (fresh.objective or math.inf), seed
        longest_s = limits.get("max_step_time_s", math.inf)
        assert (kept.step_time_ns or 0) <= longest_s * 1e9 * (1 + 1e-12), seed


# Studies that cannot be used


@pytest.fixture(scope="module")
def sound_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a search that has ended."""
    path = tmp_path_factory.mktemp("sound_file") / "study.db"
    solved(path)
    return path.read_bytes()


def refused(path: Path, instance: Instance = SMALL) -> str:
    """What is said of the study of another state."""
    with pytest.raises(StudyError) as error, open_study(path, instance, patience_s=0.1) as study:
        Shelf(study, "kind", NUMBER).keep("key", None, 1)
    assert error.value.exit_code == 2
    assert str(error.value).isprintable()
    return str(error.value).removeprefix(f"{path}: ")


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def test_studies_that_are_not_ours(
    sound_file: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that says why, and nothing is written. Another version may have closed wrongly."""
    path, text = tmp_path / "study.db", tmp_path / "notes.txt"
    path.write_bytes(sound_file)
    said = {"another": refused(path, load_instance(ROOT / "instances" / "two_zones.yaml"))}
    with monkeypatch.context() as patch:
        patch.setattr(store, "HETPLAN_VERSION", "9.9.9")
        said["version"] = refused(path)
    assert path.read_bytes() == sound_file
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("begin exclusive")
        said["locked"] = refused(path)
    path.write_bytes(sound_file[: len(sound_file) // 2])
    said["half"] = refused(path)
    path.write_bytes(sound_file)
    change(path, "pragma user_version = 9")
    said["format"] = refused(path)
    change(tmp_path / "other.db", "create table t (x)")
    said["database"] = refused(tmp_path / "other.db")
    text.write_text("notes" * 1000)
    said["text"] = refused(text)
    assert text.read_text() == "notes" * 1000
    as_recorded("studies", said)


def test_record_that_was_changed(sound_file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    path.write_bytes(sound_file)

    def sooner(fields: str) -> str:
        kept = json.loads(fields)  # null where a search found no plan
        return json.dumps(kept and [kept[0], kept[1] - 1])

    reshelve(path, "start", sooner)
    with pytest.raises(StudyError, match=r"plan of \d+ ns takes"):
        solved(path)


def views(path: Path, file: bytes, instance: Instance) -> list[object]:
    """What `show` says of a file, then searches without and with a limit; or why they refuse it."""
    told: list[object] = []
    path.write_bytes(file)
    try:
        shown = overview(path)
        told.append((said(shown.result), shown.closed, shown.open, shown.spent_s))
    except StudyError as error:
        told.append(str(error))
    for limit_s in (None, 60.0):
        path.write_bytes(file)
        try:
            told.append(said(solved(path, instance, time_limit_s=limit_s)))
        except StudyError as error:
            told.append(str(error))
    return told


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"zone_link"', b'"zone#link"'),
        (b'"max_step_time_s"', b'"max\x13step_time_s"'),
        (b"notehetplan", b"notehetplaN"),
        (b"tablerecordsrecords", b"table\xd2\xc9cordsrecords"),
        (b'"cut_short":false', b'"cut_short":true '),
    ],
)
def test_bug_damaged_studies_were_tracebacks(
    before: bytes, after: bytes, sound_file: bytes, tmp_path: Path
) -> None:
    """Or read without complaint: fields, a name, the tables, an answer."""
    assert before in sound_file
    for line in views(tmp_path / "study.db", sound_file.replace(before, after), SMALL):
        assert isinstance(line, str)
        assert line.isprintable()
        assert line.endswith("name a new file")


@pytest.mark.parametrize("seeds", few_and_many(range(300), 30))
def test_damaged_study_is_refused_or_says_the_same(seeds: Sequence[int], tmp_path: Path) -> None:
    """Never a traceback, never another plan: what SQLite does not see, digests do.

    Some bits, bytes or blocks have changed, or the file is cut off.
    """
    path, tiny = tmp_path / "study.db", random_instance(0)
    solved(path, tiny)
    sound = path.read_bytes()
    expected = views(path, sound, tiny)
    for seed in seeds:
        rng, data = random.Random(seed), bytearray(sound)
        first, length = rng.randrange(len(data)), rng.choice([16, 512, 4096])
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
        for view, right in zip(views(path, bytes(data), tiny), expected, strict=True):
            refused = isinstance(view, str | None) and str(view).isprintable()
            assert refused or view == right, seed


@pytest.mark.parametrize("by", ["sqlite", "system"])
def test_study_without_room_is_refused_and_goes_on_with_more(by: str, tmp_path: Path) -> None:
    """By SQLite's own limit of pages; by the system's, which hits the write-ahead log first."""
    path, before = tmp_path / "study.db", resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if by == "system":
            resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
        room = pytest.raises(StudyError, match="make room and run this again")
        with room, open_study(path, SMALL) as study:
            if by == "sqlite":
                study.connection.execute("pragma max_page_count = 8")
            solve(SMALL, None, None, study)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with open_study(path, SMALL) as study:
        assert study.count("start") or by == "system"
        assert solve(SMALL, None, None, study).gap == 0.0


def test_what_is_made_once_is_kept(tmp_path: Path) -> None:
    """Of a key; without a study it is made each time."""
    numbers = iter(range(9))
    for path, expected in ((tmp_path / "study.db", [0, 0, 1]), (None, [2, 3, 4])):
        with study_at(path, SMALL) as study:
            keys = ("a", "a", "b")
            made = [Shelf(study, "k", NUMBER).once(key, numbers.__next__) for key in keys]
        assert made == expected
