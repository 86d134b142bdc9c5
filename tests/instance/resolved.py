"""Instance files that tests start from, and what others resolve to; the lines of broken files.

tests/data/errors.txt lists every broken file and the lines that loading it must print; {gpus},
{links} and {workloads} stand for the names in the catalogues.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.instance.load import load_family, load_instance, parse_instance
from formulations.instance.machines import gpu_catalogue, link_catalogue
from formulations.instance.resolve_workload import workload_catalogue
from formulations.instance.targets import TARGETS
from tests.conftest import ROOT, text_of
from tests.random_spaces import written_instance
from tests.recorded import digest

DATA = ROOT / "tests" / "data"
BROKEN = Path("tests/data")
EXPECTED: dict[str, list[str]] = {}
for _row in (DATA / "errors.txt").read_text(encoding="utf-8").splitlines():
    _name, _line = _row.split(" | ", maxsplit=1)
    EXPECTED.setdefault(_name, []).append(_line)
#: best_known.yaml lists results and is no instance.
SHIPPED = sorted(path for path in ROOT.glob("instances/*.yaml") if path.stem != "best_known")
MINIMAL, PROFILE = text_of("minimal.txt"), text_of("profile.txt")
#: A GPU type.
ONE_GPU = text_of("one_gpu.txt")


def parsed(text: str, folder: Path = DATA) -> Instance:
    return parse_instance(text, "x.yaml", folder)


@cache
def shipped() -> dict[str, Instance]:
    """The files of instances/, with the most nodes where these are to choose."""
    return {path.stem: load_family(path).instance for path in SHIPPED}


@cache
def drawn() -> dict[str, Instance | str]:
    """Of drawn texts, with the lines of those that are refused."""
    made: dict[str, Instance | str] = {}
    for target in TARGETS:
        for seed in range(15):
            try:
                text = written_instance(seed, target)
                made[f"{target} {seed}"] = parse_instance(text, "x.yaml", Path())
            except InstanceError as error:
                made[f"{target} {seed}"] = str(error)
    return made


def instances() -> Iterator[tuple[str, Instance]]:
    """All that are not refused, with their names."""
    texts = shipped() | drawn()
    return ((name, made) for name, made in texts.items() if isinstance(made, Instance))


def section(field: str) -> dict[str, str]:
    """Of all of them the digest of a section."""
    return {name: digest(getattr(instance, field)) for name, instance in instances()}


def check_lines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    expected = "\n".join(EXPECTED[name])
    lists = {"gpus": gpu_catalogue(), "links": link_catalogue(), "workloads": workload_catalogue()}
    for key, names in lists.items():
        expected = expected.replace(f"{{{key}}}", ", ".join(names))
    with pytest.raises(InstanceError) as caught:
        load_instance(BROKEN / name)
    assert (str(caught.value), caught.value.exit_code) == (expected, 2)


def broken(*words: str) -> Callable[[pytest.MonkeyPatch], None]:
    """A test that each broken file whose name has one of these words gives exactly its lines."""

    def test(monkeypatch: pytest.MonkeyPatch) -> None:
        for name in EXPECTED:
            if any(word in name for word in words):
                check_lines(name, monkeypatch)

    return test
