"""What is installed: the wheel, which works anywhere, and the libraries that commands load."""

import os
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

from solver.files import HETPLAN_VERSION
from tests.conftest import ROOT

# What is installed: the wheel holds module and packages and nothing else, and works anywhere.

PACKAGES = ("formulations", "solver", "hetplan-stubs")


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | variables
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from this tree, without network."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    [built] = folder.glob("*.whl")
    return built


def test_wheel_holds_exactly_the_packages(wheel: Path) -> None:
    """Outside its metadata the wheel lists the module and the files of the packages, no others.

    The version that plan files carry is the wheel's; the figures of the catalogue are among them.
    The packages are marked as typed (PEP 561); the stubs of the module are its own text. The only
    console script is hetplan, and the licence text is included.
    """
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*"))
    files = [path for path in paths if path.is_file() and "__pycache__" not in path.parts]
    with zipfile.ZipFile(wheel) as archive:
        texts = {name: archive.read(name) for name in archive.namelist()}
    packed = {name for name in texts if ".dist-info/" not in name}
    assert packed == {"hetplan.py", *(path.relative_to(ROOT).as_posix() for path in files)}
    assert {"solver/py.typed", "formulations/py.typed"} <= packed
    assert any(name.startswith("formulations/instance/catalogue/") for name in packed)
    assert wheel.name.split("-")[:2] == ["hetplan", HETPLAN_VERSION]
    assert texts["hetplan-stubs/__init__.pyi"] == (ROOT / "hetplan.py").read_bytes()
    metadata = f"hetplan-{HETPLAN_VERSION}.dist-info"
    scripts = ConfigParser()
    scripts.read_string(texts[f"{metadata}/entry_points.txt"].decode())
    assert dict(scripts["console_scripts"]) == {"hetplan": "solver.cli:app"}
    assert texts[f"{metadata}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()


def test_launcher_runs_from_another_folder(tmp_path: Path) -> None:
    assert "solve" in run(sys.executable, ROOT / "cli.py", "--help", cwd=tmp_path)


def test_wheel_works_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    """From an empty folder: an instance, its proved plan, the proof again, a page, a job.

    The module, the packages and their data are those of the wheel.
    """
    site, work = tmp_path / "site", tmp_path / "work"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    work.mkdir()
    commands = """\
init --model bert-base --global-batch 8 --nodes 1x2xA10 --nodes 1x2xT4 --out mine.yaml
solve mine.yaml --out plan.json
verify plan.json --instance mine.yaml
report plan.json
export plan.json --to megatron --own-model --out job"""
    code = f"""\
import hetplan, solver.cli
print(hetplan.__file__, solver.cli.__file__, sep="\\n")
for words in {commands.splitlines()}:
    solver.cli.app(words.split(), standalone_mode=False)"""
    printed = run(sys.executable, "-c", code, cwd=work, PYTHONPATH=str(site))
    assert all(Path(line).is_relative_to(site) for line in printed.splitlines()[:2])
    assert "proved that no plan is better" in printed
    assert "verified\n" in printed
    files = ["job", "mine.yaml", "plan.json", "report.html"]
    assert sorted(path.name for path in work.iterdir()) == files


# Which libraries a command loads, and that those of the solvers share one process.


def test_both_models_solve_in_one_process() -> None:
    """HiGHS, then CP-SAT: the same optimum; other tests load them the other way round.

    google/or-tools#5246 tells how they once could not.
    """
    code = """
from solver.options import SolveOptions
from solver.search.driver import solve
from tests.small_instances import random_instance
instance = random_instance(3)
first, second = (solve(instance, SolveOptions(method=method)) for method in ("milp", "cpsat"))
assert first.status == second.status == "optimal"
assert first.step_time_ns == second.step_time_ns
"""
    run(sys.executable, "-c", code, cwd=ROOT)


ENGINES = {"ortools", "highspy", "pulp", "matplotlib", "pandas", "torch", "ray"}
PLANNER = {"numpy", "rich", "yaml", "formulations.instance", "solver.search", "solver.verify"}


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["--help"], {*ENGINES, *PLANNER, "pydantic"}),
        (["solve", "--help"], {*ENGINES, *PLANNER}),  # newer Typer needs pydantic
        (["solve", "tests/data/solved/unlike_ends.yaml"], ENGINES),
    ],
)
def test_commands_load_what_they_need(arguments: list[str], unneeded: set[str]) -> None:
    """`--help` answers without the planner; engines come when a method asks for them."""
    code = f"""
import sys
from solver.cli import app
try:
    app({arguments})
finally:
    print(*sys.modules)
"""
    printed = run(sys.executable, "-c", code, cwd=ROOT)
    assert not unneeded & set(printed.splitlines()[-1].split())
