"""Promises of formulations.instance.resolve_lengths: what the section `lengths` means for a step.

Its errors have their files in tests/data.
"""

from pathlib import Path

from formulations.instance import Instance
from formulations.lengths.row_times import of_rows
from tests.instance.test_length_classes import HEAD, LENGTHS, classes, parsed

HISTOGRAM = HEAD + "lengths: {histogram: [{up_to: 1000, count: 7}, {up_to: 3000, count: 2}]}"
TABLE = """
  strategies:
    - {name: a, data_parallel: 1, tensor_parallel: 8, pipeline_parallel: 1,
       class_times: {1000: 1 s}}
    - {data_parallel: 2, tensor_parallel: 8, pipeline_parallel: 1,
       class_times: {3000: 1 s}}
    - {name: c, data_parallel: 4, tensor_parallel: 1, pipeline_parallel: 1,
       class_times: {1000: 2 s}}
  switching:
    - {leave: a, enter: c, parameters: 1 s, gradients: 2 s}
    - {leave: c, enter: a, parameters: 3 s, gradients: 4 s}
    - {leave: a, enter: "dp 2, tp 8, pp 1", parameters: 5 s, gradients: 6 s}
    - {leave: c, enter: "dp 2, tp 8, pp 1", parameters: 7 s, gradients: 8 s}
"""


def test_histogram() -> None:
    """Classes as written; the workload has as many sequences, as long as the longest, rounded."""
    instance = parsed(HISTOGRAM)
    assert classes(instance) == [(1000, 7), (3000, 2)]
    assert instance.workload.global_batch == 9
    assert instance.workload.sequence_length == 3072  # 24 * 128


def test_workload_may_state_longer_sequences() -> None:
    """A sequence length above the longest is kept: rows may hold as many tokens."""
    own = HISTOGRAM.replace("llama2-7b", "llama2-7b, sequence_length: 8192, global_batch: 9")
    assert parsed(own).workload.sequence_length == 8192


def test_instance_with_lengths_keeps_through_json() -> None:
    """What is written of an instance with lengths is the same instance."""
    instance = parsed(HISTOGRAM)
    assert Instance.model_validate_json(instance.model_dump_json()) == instance


def test_rows_of_one_length() -> None:
    """Rows as long as the catalogue's sequences are the catalogue's workload."""
    plain = parsed(HEAD)
    rows = of_rows(parsed(HISTOGRAM), 4096, 1024)
    assert rows.workload == plain.workload
    assert rows.lengths is None


def test_file_longer_sequences_are_cut_off(tmp_path: Path) -> None:
    """`longest` cuts, `sequences` scales: twice as many of each."""
    (tmp_path / "a.csv").write_text("\n".join(map(str, LENGTHS)))
    text = f"{HEAD}lengths: {{file: a.csv, longest: 512, sequences: 12}}"
    assert classes(parsed(text, tmp_path)) == [(5, 6), (32, 2), (512, 4)]


def test_switches_back_take_as_long_unless_they_are_listed() -> None:
    """Every ordered pair once, by names or degrees."""
    text = (
        HEAD + "lengths:\n  histogram: [{up_to: 1000, count: 7}, {up_to: 3000, count: 2}]" + TABLE
    )
    lengths = parsed(text).lengths
    assert lengths is not None
    times = {(way.leave, way.enter): (way.parameters, way.gradients) for way in lengths.switching}
    middle = "dp 2, tp 8, pp 1"
    assert times == {
        ("a", "c"): (1, 2),
        ("c", "a"): (3, 4),
        ("a", middle): (5, 6),
        (middle, "a"): (5, 6),
        ("c", middle): (7, 8),
        (middle, "c"): (7, 8),
    }
