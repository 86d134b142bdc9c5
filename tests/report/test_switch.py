"""Switches in words, as a page and as a picture."""

import pytest

from tests.report.shown import as_stored


@pytest.mark.parametrize("name", ["switch", "switch_page"])
def test_switches_are_shown_as_they_are_stored(name: str) -> None:
    """Volumes of every GPU, times beside the published rule, every sending."""
    made, stored = as_stored(name)
    assert made == stored
