"""The table of the layout in CONTRIBUTING.md is that of the tree."""

import re
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = ("formulations", "solver")


def places() -> Iterator[str]:
    """What the first column names, from the root, without the slash of a folder.

    A name without folder stands where the one before it in its row does.
    """
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for cell in re.findall(r"^\| (`.*?) \|", text.partition("## Layout")[2], re.MULTILINE):
        folder = ""
        for name in re.findall(r"`([^`]+)`", cell):
            parent, _, last = name.rstrip("/").rpartition("/")
            folder = parent or (folder if (ROOT / folder / last).exists() else "")
            yield f"{folder}/{last}".lstrip("/")


def tree(folder: str) -> set[str]:
    """Modules and packages in a package."""
    inside = (path for path in (ROOT / folder).iterdir() if not path.name.startswith("_"))
    return {f"{folder}/{path.name}" for path in inside if path.suffix == ".py" or path.is_dir()}


def test_bug_layout_table_names_the_tree() -> None:
    """Every module and package of both packages once, and nothing that is not there."""
    named = list(places())
    inside = [name for name in named if name.split("/")[0] in PACKAGES]
    assert sorted(inside) == sorted(set.union(*map(tree, PACKAGES)))
    assert all((ROOT / name).exists() for name in named)


@pytest.mark.parametrize("package", PACKAGES)
def test_layout_table_has_the_order_of_imports(package: str) -> None:
    """What stands lower in the table is no lower a layer of `.importlinter`."""
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = contracts[f"importlinter:contract:{package}"]["layers"].split("\n")[::-1]
    height = {name: i for i, layer in enumerate(layers) for name in re.findall(r"\w+", layer)}
    heights = [height[Path(name).stem] for name in places() if name.startswith(f"{package}/")]
    assert heights == sorted(heights)
