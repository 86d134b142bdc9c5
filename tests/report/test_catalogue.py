"""GPUs and workloads in words say what the catalogue holds, with every source."""

import json
from pathlib import Path

from formulations.instance import Workload
from formulations.instance.huggingface import sizes_from_config
from formulations.instance.transformer import build_workload
from solver.report.catalogue import workload_report
from solver.report.text import chain_text
from tests.command_line import printed

CONFIGS = Path(__file__).resolve().parent.parent / "data" / "huggingface"


def alternating() -> Workload:
    """A chain in which blocks of two kinds take turns."""
    config = json.loads((CONFIGS / "gpt-oss-20b.json").read_text(encoding="utf-8"))
    return build_workload(
        sizes_from_config(config, "c"),
        name="w",
        source="t",
        sequence_length=256,
        global_batch=8,
        flash_attention=True,
    )


def test_layers_that_alternate_are_counted() -> None:
    """Layers of one kind stand in one row, where others lie between them, too; runs are counted."""
    workload = alternating()
    assert "12 of 0-22  sliding_block" in printed(*workload_report(workload))
    assert chain_text(workload) == "1 embedding, 12 sliding_block, 12 block, 1 head"
