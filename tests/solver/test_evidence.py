"""Plans say what their figures rest on, in text and in JSON."""

import json
from pathlib import Path

from tests.command_line import output

SMALL = """
name: evidence
workload: {{catalogue: bert-large, global_batch: 8, precision: {precision}}}
cluster:
  groups:
    - {{name: h, gpu: H100, gpus_per_node: 2, nodes: 1, memory: {memory}}}
search: {{overlap: megatron, data_parallel: 2, zero: [0, 1]}}
limits: {{{limits}}}
"""


def solved(folder: Path, *options: str, memory: str = "40 GiB", limits: str = "") -> str:
    """What solve prints."""
    path = folder / "evidence.yaml"
    text = SMALL.format(precision="bf16", memory=memory, limits=limits)
    path.write_text(text, encoding="utf-8")
    out = output("solve", path, *options)
    return " ".join(out.split())


def test_plan_repeats_kinds_and_sources(tmp_path: Path) -> None:
    """Peaks, memory, links and efficiency of the GPU type; what is hidden, as an assumption."""
    out = solved(tmp_path)
    assert "H100: peaks, links in nodes, between nodes published; memory" in out
    assert "memory assumed by the instance" in out
    assert "kernel efficiency assumed (between A100-80 and B200" in out
    assert "hidden 90.0 % of gradient sync behind backward (one chunk of gradients" in out


def test_plan_file_repeats_them_too(tmp_path: Path) -> None:
    """One entry per GPU type."""
    (entry,) = json.loads(solved(tmp_path, "--json"))["evidence"]
    assert entry["gpu"] == "H100"
    kinds = {name: entry[name]["kind"] for name in ("peak", "memory", "intra_node", "layer_times")}
    assert kinds == {
        "peak": "published",
        "memory": "assumed",
        "intra_node": "published",
        "layer_times": "assumed",
    }


def test_headroom_is_the_memory_models_error_by_default(tmp_path: Path) -> None:
    """2.5 % of 40 GiB: 39 GiB; all of it where the instance says so."""
    assert "used of 39.00 GiB" in solved(tmp_path)
    assert "used of 40.00 GiB" in solved(tmp_path, limits="memory_headroom: 0")


def test_plan_within_the_error_says_so(tmp_path: Path) -> None:
    """A plan that leaves less than 2.5 % of the memory; not one that leaves more."""
    note = "within 2.5 % of the GPU's, the error of the memory model"
    used = json.loads(solved(tmp_path, "--json"))["replicas"][0]["stages"][0]["memory_bytes"]
    tight = solved(tmp_path, memory=f"{used / 0.98:.0f} B", limits="memory_headroom: 0")
    assert note in tight
    assert note not in solved(tmp_path, limits="memory_headroom: 0")
