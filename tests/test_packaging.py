"""What is installed: the wheel holds module and packages and nothing else, and works anywhere."""

import os
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

from solver.files import HETPLAN_VERSION

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("formulations", "solver", "hetplan-stubs")


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Standard output of a command that must succeed."""
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


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel alone is installed."""
    folder = tmp_path_factory.mktemp("site")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
    ]
    run(*pip, "--target", folder, wheel, cwd=folder)
    return folder


def source_files() -> set[str]:
    """Paths of the module and of all files of the packages in the tree, bytecode aside."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*"))
    return {"hetplan.py"} | {
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_wheel_holds_exactly_the_packages(wheel: Path) -> None:
    """Outside its metadata the wheel lists the module and the files of the packages, no others.

    The version that plan files carry is the wheel's; the figures of the catalogue are among them.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == source_files()
    assert any(name.startswith("formulations/instance/catalogue/") for name in names)
    assert wheel.name.split("-")[:2] == ["hetplan", HETPLAN_VERSION]


def test_wheel_tells_the_types(wheel: Path) -> None:
    """The packages are marked as typed (PEP 561); the stubs of the module are its own text."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        stubs = archive.read("hetplan-stubs/__init__.pyi")
    assert {"solver/py.typed", "formulations/py.typed"} <= set(names)
    assert stubs == (ROOT / "hetplan.py").read_bytes()


def test_wheel_names_script_and_licence(wheel: Path) -> None:
    """The only console script is hetplan = solver.cli:app, and the licence text is included."""
    with zipfile.ZipFile(wheel) as archive:
        [entry] = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        licences = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
        scripts = ConfigParser()
        scripts.read_string(archive.read(entry).decode())
        text = archive.read(licences[0]).decode()
    assert dict(scripts["console_scripts"]) == {"hetplan": "solver.cli:app"}
    assert text == (ROOT / "LICENSE").read_text()


def test_launcher_runs_from_another_folder(tmp_path: Path) -> None:
    """`python cli.py` finds the packages beside it, whatever the working folder."""
    assert "solve" in run(sys.executable, ROOT / "cli.py", "--help", cwd=tmp_path)


def test_wheel_works_without_the_repository(site: Path, tmp_path: Path) -> None:
    """From an empty folder: an instance, its proved plan, the proof again, a page, a job.

    The module, the packages and their data are those of the wheel.
    """
    code = "import hetplan, solver.cli; print(hetplan.__file__); print(solver.cli.__file__)"
    printed = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(site))
    assert all(Path(line).is_relative_to(site) for line in printed.splitlines())

    def hetplan(*arguments: str) -> str:
        return run(site / "bin" / "hetplan", *arguments, cwd=tmp_path, PYTHONPATH=str(site))

    nodes = ("--nodes", "1x2xA10", "--nodes", "1x2xT4@25 Gbit/s")
    hetplan("init", "--model", "bert-base", "--global-batch", "8", *nodes, "--out", "mine.yaml")
    assert "proved that no plan is better" in hetplan("solve", "mine.yaml", "--out", "plan.json")
    assert hetplan("verify", "plan.json", "--instance", "mine.yaml").endswith("verified\n")
    hetplan("report", "plan.json")
    hetplan("export", "plan.json", "--to", "megatron", "--out", "job")
    files = ["job", "mine.yaml", "plan.json", "report.html"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files
