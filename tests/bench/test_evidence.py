"""Rows of any folder of the reference's layout, with and without a plan of ours."""

import json
import shutil
from pathlib import Path

from bench.accuracy import predicted, summaries
from bench.evidence import read
from bench.runs import catalogue_name
from tests.conftest import ROOT, present
from tests.refusals import refusals

ROWS = ROOT / "tests" / "data" / "evidence_rows.json"


def test_every_kind_of_row_has_a_plan_or_a_reason(tmp_path: Path) -> None:
    shutil.copy(ROWS, tmp_path / "any_name.json")
    (tmp_path / "notes.json").write_text('{"rows": [{"colour": "red"}]}', encoding="utf-8")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    (tmp_path / "empty.csv").write_text("", encoding="utf-8")
    evidence = read(tmp_path)
    assert evidence.unread == ("broken.json", "empty.csv", "notes.json")
    told = json.loads(ROWS.read_text(encoding="utf-8"))["rows"]
    assert [case.why_not for case in evidence.cases] == [row["why_not"] for row in told]
    rows = [predicted(case) for case in evidence.cases]
    assert all((row["error"] is None) == (row["why_not"] is not None) for row in rows)
    # two groups of V100 and T4, in the hosts' order
    (mixed,) = [case for case in evidence.cases if case.kind == "12 V100-16 + 4 T4"]
    assert present(mixed.plan)[1].config.nodes_used == (3, 1)
    (line,) = [line for line in summaries(rows, "source") if line["source"] == "SimuMax"]
    assert (line["rows"], line["of"], line["p90"]) == (1, 1, abs(line["signed"]))


@refusals("model_names")
def test_models_are_told_by_their_names(text: str, message: str) -> None:
    assert catalogue_name(text) == message
