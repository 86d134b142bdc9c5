"""The command `replay`."""

from tests.docs_pages import shown_and_printed


def test_consoles_of_replays() -> None:
    """Two policies side by side, as data, and what is refused."""
    shown, printed = shown_and_printed("replay")
    assert printed == shown
