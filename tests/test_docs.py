"""The documentation: what its pages show is what happens today, and the site can be built."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from formulations.instance.load import InstanceFile, load_instance
from solver.cli.kinds import KINDS
from solver.files import Envelope
from tests.docs_pages import DOCS, pages, replayed, stable

#: Pages whose searches take long, and print what those of other pages do.
SLOW = ("homogeneous", "sweep", "experts", "lab")
PAGES = [
    pytest.param(page, marks=[pytest.mark.slow] * (page.stem in SLOW), id=page.stem)
    for page in pages(DOCS)
]


@pytest.mark.parametrize("page", PAGES)
def test_consoles_print_what_pages_show(page: Path) -> None:
    """Every line but those that tell times; `python -m tests.docs_pages` writes them anew."""
    assert stable(page.read_text("utf-8")) == stable(replayed(page))


def test_examples_are_shown() -> None:
    shown = "".join(page.read_text("utf-8") for page in pages(DOCS))
    for path in (DOCS / "examples").glob("*.yaml"):
        load_instance(path)
        assert path.stem in shown


def section(kind: str) -> str:
    """What the page of formats says of one kind of files."""
    _, *sections = (DOCS / "formats.md").read_text("utf-8").split("\n## ")
    return next(text for text in sections if text.startswith(f"{kind.capitalize()}\n"))


def written(document: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A document and those in it that no other kind of files is."""
    yield document
    for field in document.model_fields.values():
        for part in parts_of(field.annotation):
            if part.__module__.startswith("solver.") and "schema_version" not in part.model_fields:
                yield from written(part)


def parts_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """The records in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from parts_of(argument)


def test_instances_are_documented_whole() -> None:
    assert set(InstanceFile.model_fields) <= set(re.findall(r"`(\w+)`", section("instance")))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind_name())
def test_bug_formats_are_documented_whole(kind: type[Envelope]) -> None:
    """The section of every kind of files names each field that is written, and the version."""
    text = section(kind.kind_name())
    named = set(re.findall(r"`(\w+)`", text))
    for document in written(kind):
        assert set(document.model_fields) <= named, document.__name__
    assert re.search(rf"\bschema {kind.version()}\b", text)


def test_pages_name_no_machine() -> None:
    """No path of a checkout and no address of a registry stands in a page."""
    for page in DOCS.rglob("*.md"):
        assert not re.search(r"/(work|home|tmp|root)/|pypi|127\.0\.0\.1", page.read_text("utf-8"))


@pytest.mark.slow  # 14 s, as the notebook runs; `.ci/docs` builds it, too
def test_site_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra docs is not installed")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    done = subprocess.run(
        [*build, str(tmp_path)], cwd=DOCS.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
