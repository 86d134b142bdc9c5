"""torchtitan's module and schedule: what they make of a model, and what is refused where."""

from dataclasses import replace
from pathlib import Path

import pytest

from formulations.errors import PlanError
from solver.evaluate.launched import Launched
from solver.evaluate.torchtitan_run import launched
from solver.export import torchtitan
from tests.export.stored import stored
from tests.export_cases import JOBS, UNTIED, instance_of, job_of
from tests.recorded import Cases, digest, recorded
from tests.refusals import refusal, refusals

JOB = job_of(workload=UNTIED, recompute=("full",))
MODULE = torchtitan.files(JOB)["planned_config.py"]
SCHEDULE = torchtitan.files(JOB)["schedule.csv"]


def read(folder: Path, module: str = MODULE, schedule: str = SCHEDULE) -> Launched:
    (folder / "planned_config.py").write_text(module)
    (folder / "schedule.csv").write_text(schedule)
    return launched(folder, instance_of(UNTIED))


@recorded("torchtitan_runs")
def test_exported_runs_are_the_recorded_ones(tmp_path: Path) -> Cases:
    for name in stored("torchtitan"):
        for file, text in torchtitan.files(JOBS[name]).items():
            (tmp_path / file).write_text(text)
        run = launched(tmp_path, JOBS[name].instance)
        yield name, [*run.boundaries, digest(replace(run, source="", places={}))]


def test_named_schedule(tmp_path: Path) -> None:
    """Without a file, by name; one that runs other numbers of parts is refused."""
    line = next(one for one in MODULE.splitlines() if "schedule_csv" in one)
    plain = MODULE.replace(line, "")
    assert read(tmp_path, plain.replace("PipelineScheduleMulti", "GPipe")).schedule == "gpipe"
    for name in ("Interleaved1F1B", "ZBVZeroBubble"):
        with pytest.raises(PlanError, match=r"_schedule '\w+' with 1 parts per rank; allowed"):
            read(tmp_path, plain.replace("PipelineScheduleMulti", name))


def test_only_module_of_a_folder(tmp_path: Path) -> None:
    """Any name will do; of several, none is guessed."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "schedule.csv").write_text(SCHEDULE)
    assert launched(tmp_path, instance_of(UNTIED)).source.endswith("mine.py")
    (tmp_path / "other.py").write_text(MODULE)
    with pytest.raises(PlanError, match=r"2 modules .*; allowed: a folder with planned_config.py"):
        launched(tmp_path, instance_of(UNTIED))


@refusals("torchtitan")
def test_refused(text: str, message: str, tmp_path: Path) -> None:
    """With something else in the one file or the other: place, what was found, what is allowed."""
    old, new = text.split(" => ")
    assert (old in MODULE) != (old in SCHEDULE)
    files = MODULE.replace(old, new), SCHEDULE.replace(old, new, 1)
    assert refusal(lambda: read(tmp_path, *files)) == f"{tmp_path}/{message}"
