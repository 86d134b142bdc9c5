"""The commands `catalogue` and `init`; for `profile` see tests/measure."""

from tests.docs_pages import shown_and_printed


def test_consoles_of_setup() -> None:
    shown, printed = shown_and_printed("setup")
    assert printed == shown
