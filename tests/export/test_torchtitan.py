"""torchtitan's module and schedule: what they say is the plan."""

import csv
import io

import pytest

from formulations.errors import PlannerError
from solver.export import torchtitan
from solver.export.job import Job, read_settings
from solver.export.registry import EXPORTERS
from solver.export.torchtitan import MODULE, SCHEDULE, Field
from tests.export_cases import CHUNKS, SHARDED, UNEVEN, UNTIED, ZERO_BUBBLE, job_of


def rows_of(job: Job) -> list[str]:
    """The schedule file, row by row."""
    return [" ".join(row) for row in csv.reader(io.StringIO(torchtitan.files(job)[SCHEDULE]))]


def test_schedule_file_of_1f1b() -> None:
    """The last of four ranks does one forward, one backward; the first warms up with three."""
    rows = rows_of(UNEVEN)
    assert rows[3] == "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3"
    assert rows[0] == "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3"
    assert rows[1] == "1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3"


def test_schedule_file_of_zero_bubble_and_chunks() -> None:
    """Backward in two parts, weights last; a rank's chunks are stages r and r + 4."""
    rows = rows_of(ZERO_BUBBLE)
    assert rows[3] == "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3W1 3W2 3W3"
    assert rows[0].startswith("0F0 0F1 0F2 0F3 0I0 0W0 ")
    assert {cell[0] for cell in rows_of(CHUNKS)[1].split()} == {"1", "5"}


def test_modules() -> None:
    """Blocks from 0, embedding before the first, norm and head after the last."""
    text = torchtitan.files(UNEVEN)[MODULE]
    told = read_settings(text)
    parts = told[Field.PARTS]
    assert isinstance(parts, list)
    assert parts[0] == ["tok_embeddings", "layers.0", "layers.1", "layers.2"]
    assert parts[3] == ["layers.8", "layers.9", "layers.10", "layers.11", "norm", "lm_head"]
    assert told[Field.LOCAL] == 8  # 4 micro-batches of 2
    assert "pytorch/issues/172668" in text
    assert read_settings(torchtitan.files(SHARDED)[MODULE])[Field.LOCAL] == 2


@pytest.mark.parametrize(
    ("job", "replicate", "shard", "policy"),
    [
        (UNEVEN, 1, 2, "never"),
        (SHARDED, 1, 8, "always"),
        (job_of(workload=UNTIED, zero=0), 2, 1, "never"),
    ],
)
def test_sharding(job: Job, replicate: int, shard: int, policy: str) -> None:
    """ZeRO 1 of several stages and 3 of one are FSDP2, 0 is replication."""
    told = torchtitan.settings(job)
    assert (told[Field.REPLICATE], told[Field.SHARD]) == (replicate, shard)
    assert told[Field.RESHARD] == policy


@pytest.mark.parametrize(
    ("workload", "line"),
    [
        (f"{UNTIED}, precision: fp16", "precision: fp16 is not for torchtitan"),
        (f"{UNTIED}, gradient_precision: bf16", "gradient_precision: 16 bit is not for torchtitan"),
    ],
)
def test_precision(workload: str, line: str) -> None:
    """bf16 or fp32, gradients in fp32."""
    (fault,) = EXPORTERS["torchtitan"].faults(job_of(workload=workload))
    assert fault.found.startswith(line)


@pytest.mark.parametrize(("precision", "name"), [("bf16", "bfloat16"), ("fp32", "float32")])
def test_bug_torchtitan_ran_fp32_plans_in_bf16(precision: str, name: str) -> None:
    """Its mixed precision is bf16 unless told."""
    told = torchtitan.settings(job_of(workload=f"{UNTIED}, precision: {precision}"))
    assert told[Field.PARAMETERS] == name


@pytest.mark.parametrize(
    ("file", "old", "new", "what"),
    [
        (MODULE, f"{Field.TP} = 1", f"{Field.TP} = 2", "degrees"),
        (MODULE, f"{Field.SHARD} = 2", f"{Field.SHARD} = 4", "data-parallel degrees"),
        (MODULE, "LAYERS = 12", "LAYERS = 13", "layers"),
        (MODULE, f"{Field.GLOBAL} = 16", f"{Field.GLOBAL} = 8", "global batch"),
        (MODULE, f"{Field.LOCAL} = 8", f"{Field.LOCAL} = 4", "sequences per rank"),
        (MODULE, "'layers.3', ", "", "modules"),
        (SCHEDULE, "3F0,3B0", "3B0,3F0", "operations"),
    ],
)
def test_file_that_says_anything_else_is_found(file: str, old: str, new: str, what: str) -> None:
    """As written it is accepted; with one thing changed it is refused for that very thing."""
    texts = torchtitan.files(UNEVEN)
    EXPORTERS["torchtitan"].check(UNEVEN, texts)
    assert texts[file].count(old) == 1
    with pytest.raises(PlannerError, match=f"^export failed: {what} read back as "):
        torchtitan.check(UNEVEN, texts | {file: texts[file].replace(old, new)})
