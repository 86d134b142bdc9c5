"""The command `catalogue`; for `init` and `profile` see tests/setup and tests/measure."""

from tests.docs_pages import shown_and_printed


def test_consoles_of_the_catalogue() -> None:
    """All GPUs and workloads, a workload, a config.json, and what is refused."""
    shown, printed = shown_and_printed("setup")
    assert printed == shown
