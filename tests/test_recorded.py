"""Stored figures: what counts as the same."""

from pathlib import Path

import pytest

from tests import recorded


def test_a_figure_is_the_stored_one_or_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    monkeypatch.setenv("HETPLAN_RECORD_FIGURES", "1")
    recorded.as_recorded("bounds", {"a": [1, 0.1, None], "b": 2})
    monkeypatch.delenv("HETPLAN_RECORD_FIGURES")
    recorded.as_recorded("bounds", {"a": [1, 0.1 + 1e-12, None]})
    for case, figure in {"a": [1, 0.2, None], "b": 2.0, "c": 1}.items():
        with pytest.raises(AssertionError, match=case):
            recorded.as_recorded("bounds", {case: figure})
