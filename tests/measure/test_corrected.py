"""Corrected instances: what `calibrate` writes, and what plans of them say."""

from pathlib import Path

from formulations.instance.load import load_instance
from tests.command_line import output, run
from tests.conftest import present
from tests.measure.test_calibration import HEADING, INSTANCE


def test_calibrated_plans_say_so(tmp_path: Path) -> None:
    """`calibrate` writes an instance whose plans are verified and print the expected error."""
    source, steps = tmp_path / "small.yaml", tmp_path / "steps.csv"
    out, plan = tmp_path / "corrected.yaml", tmp_path / "plan.json"
    source.write_text(INSTANCE, encoding="utf-8")
    rows = ["1,8,1,1,0.25,20 GiB", "1,4,2,1,0.3,", "2,4,1,1,0.3,"]
    steps.write_text("\n".join([f"{HEADING},memory", *rows]) + "\n", encoding="utf-8")
    text = output("calibrate", source, "--measured", steps, "--out", out)
    assert "measured peaks ask for" in text
    corrected = load_instance(out)
    assert present(corrected.calibration).source == "steps.csv, 3 measured steps"
    assert corrected.limits.memory_headroom > 0.4  # 20 GiB measured, about 10 predicted
    text = output("solve", out, "--out", plan, "--details")
    assert "layer times by steps.csv, 3 measured steps" in text
    assert "of the step time" in text
    assert run("verify", plan)[0] == 0
    code, _, error = run("calibrate", out, "--measured", steps, "--out", tmp_path / "twice.yaml")
    assert (code, error.count("\n"), "a calibration already" in error) == (2, 1, True)
