"""What is refused, and with which line; in tests/data/refused ` | ` stands between the two."""

from collections.abc import Callable

import pytest

from formulations.errors import PlannerError
from tests.conftest import text_of


def refusals(name: str) -> pytest.MarkDecorator:
    r"""A test of every case of a file, as the arguments `text` and `message`; \n ends a line."""
    lines = text_of(f"refused/{name}.txt")
    rows = [line.replace("\\n", "\n").split(" | ") for line in lines.splitlines()]
    return pytest.mark.parametrize(("text", "message"), rows)


def refusal(call: Callable[[], object]) -> str:
    """The text of the error that a call ends in."""
    with pytest.raises(PlannerError) as caught:
        call()
    return str(caught.value)


def check_refusals(name: str, call: Callable[[str], object]) -> Callable[[str, str], None]:
    """A test that each text of a file is refused with exactly its line."""

    def test(text: str, message: str) -> None:
        assert refusal(lambda: call(text)) == message

    marked: Callable[[str, str], None] = refusals(name)(test)
    return marked
