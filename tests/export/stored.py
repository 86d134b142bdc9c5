"""Exports of hand-made plans as they are stored in tests/data/exported.

Scripts for Slurm and lists of hosts, which are the same for all targets, for Megatron-LM alone.

`python -m tests.export.stored` writes them anew.
"""

from collections.abc import Callable

import pytest

from formulations.space.launch import model_obstacles
from solver.export.job import HOSTS, SLURM
from solver.export.registry import EXPORTERS
from solver.options import ExportTarget
from tests.conftest import ROOT
from tests.export.read_back import check_files
from tests.export_cases import JOBS

FOLDER = ROOT / "tests" / "data" / "exported"


def stored(target: ExportTarget) -> list[str]:
    """Names of the jobs of which an export is stored; an empty file asks for one."""
    paths = sorted(FOLDER.glob(f"*.{target}.txt"))
    return [path.name.removesuffix(f".{target}.txt") for path in paths]


def export(target: ExportTarget, name: str) -> str:
    """The files of an export, one behind the other; what is written in Python compiles."""
    exporter, job = EXPORTERS[target], JOBS[name]
    if exporter.builds(job) or model_obstacles(job.instance, exporter.launcher):
        job = job.with_own_model
    assert [fault.found for fault in exporter.faults(job)] == []
    texts = exporter.files(job)
    check_files(target, job, texts)
    for file, text in texts.items():
        if file.endswith(".py"):
            compile(text, file, "exec")
    left_out = () if target == "megatron" else (SLURM, HOSTS)
    return "".join(f"===== {file}\n{texts[file]}" for file in texts if file not in left_out)


def check_exports(target: ExportTarget) -> Callable[[str], None]:
    """A test of every stored export of a target."""

    def test(name: str) -> None:
        assert export(target, name) == (FOLDER / f"{name}.{target}.txt").read_text("utf-8")

    marked: Callable[[str], None] = pytest.mark.parametrize("name", stored(target))(test)
    return marked


if __name__ == "__main__":
    for target in EXPORTERS:
        for name in stored(target):
            text = export(target, name)
            (FOLDER / f"{name}.{target}.txt").write_text(text, encoding="utf-8")
