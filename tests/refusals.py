"""What is refused, and with which line; in tests/data/refused ` | ` stands between the two."""

import pytest

from tests.conftest import ROOT


def refusals(name: str) -> pytest.MarkDecorator:
    r"""A test of every case of a file, as the arguments `text` and `message`; \n ends a line."""
    lines = (ROOT / "tests" / "data" / "refused" / f"{name}.txt").read_text(encoding="utf-8")
    rows = [line.replace("\\n", "\n").split(" | ") for line in lines.splitlines()]
    return pytest.mark.parametrize(("text", "message"), rows)
