"""Promises of formulations.instance.lengths: what the section `lengths` means for a step.

Its errors have their files in tests/data.
"""

from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.lengths.row_times import of_rows
from tests.conftest import text_of
from tests.instance.resolved import broken, parsed
from tests.instance.test_length_classes import HEAD, LENGTHS, classes
from tests.recorded import as_recorded, digest

test_lines = broken("lengths_")

HISTOGRAM = HEAD + "lengths:\n  histogram: [{up_to: 1000, count: 7}, {up_to: 3000, count: 2}]\n"
TABLE = text_of("switch_table.txt")
#: Back again it takes longer.
BACK = '    - {leave: "dp 2, tp 2, cp 2, pp 2", enter: a, parameters: 3 s, gradients: 4 s}\n'


def test_histogram() -> None:
    """Classes as written; the workload has as many sequences, as long as the longest, rounded."""
    instance = parsed(HISTOGRAM)
    assert classes(instance) == [(1000, 7), (3000, 2)]
    assert instance.workload.global_batch == 9
    assert instance.workload.sequence_length == 3072  # 24 * 128
    with pytest.raises(InstanceError, match="packed rows without flash attention"):
        parsed(HISTOGRAM.replace("llama2-7b", "llama2-7b, flash_attention: false"))
    rows = of_rows(instance, 4096, 1024)
    assert (rows.workload, rows.lengths) == (parsed(HEAD).workload, None)


def test_steps_are_the_recorded_ones(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join(map(str, LENGTHS)))
    sections = ["{file: a.csv, longest: 512, sequences: 12}", "{file: a.csv, rows: padded}"]
    normal = "{log_normal: {median: 500, sigma: 1}, longest: 4096, sequences: 64, classes: 9}"
    texts = [f"{HEAD}lengths: {each}" for each in (*sections, normal)]
    texts += [HISTOGRAM, HISTOGRAM + TABLE, HISTOGRAM + TABLE + BACK]
    made = [parsed(text, tmp_path) for text in texts]
    figures = {f"{n}": [list(map(list, classes(i))), digest(i.lengths)] for n, i in enumerate(made)}
    as_recorded("lengths", figures)


def test_bug_rows_kept_logits_in_32_bit() -> None:
    """Where the loss is fused, that of rows of any length is."""
    fused = HISTOGRAM.replace("llama2-7b", "llama2-7b, fused_cross_entropy: true")
    assert of_rows(parsed(fused), 4096, 8).workload.fused_cross_entropy
