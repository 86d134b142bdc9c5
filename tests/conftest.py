"""Shared fixtures."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def reference() -> Path:
    """Folder of reference data that the project did not make; skips where it is absent."""
    folder = Path(os.environ.get("HETPLAN_REFERENCE", ROOT.parent / "shared" / "reference"))
    if not folder.is_dir():
        pytest.skip(f"reference data not found at {folder} (set HETPLAN_REFERENCE)")
    return folder


@pytest.fixture
def round_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches the memory traffic of layers off, so that times by hand are round numbers."""
    monkeypatch.setattr("formulations.costs.compute.MEMORY_PASSES", 0.0)
