"""Promises of formulations.instance.length_classes: histograms, files and distributions."""

import json
from collections import Counter
from io import BytesIO
from pathlib import Path
from random import Random

import numpy as np
import pytest

from formulations.instance import Instance
from formulations.instance.length_classes import classes_of, log_normal_classes
from tests.conftest import present
from tests.instance.resolved import broken, parsed
from tests.recorded import Cases, digest, recorded
from tests.refusals import refusal

test_lines = broken("lengths_")

HEAD = """
name: some_lengths
workload: {catalogue: llama2-7b}
cluster:
  groups:
    - {name: a, gpu: A100-80, gpus_per_node: 8, nodes: 2, inter_node: EFA 4x100G}
"""


def classes(instance: Instance) -> list[tuple[int, int]]:
    return [(bucket.up_to, bucket.count) for bucket in present(instance.lengths).classes]


def npy(kind: str, lengths: list[int]) -> bytes:
    np.save(file := BytesIO(), np.array(lengths, kind))
    return file.getvalue()


LENGTHS = [5, 700, 700, 5, 5, 32]
LINES = "\n".join(map(str, LENGTHS)).encode()
EIGHT = npy("<i8", LENGTHS)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("one.csv", LINES),
        ("named.csv", b"tokens\n" + LINES + b"\n\n"),
        ("several.csv", b"id,Length\r\n" + b"".join(b'"a, b",%d\r\n' % n for n in LENGTHS)),
        ("plain.jsonl", LINES),
        ("named.jsonl", "\n".join(json.dumps({"length": n}) for n in LENGTHS).encode()),
        ("array.npy", EIGHT),
        ("small.npy", npy("<u2", LENGTHS)),
        ("other_end.npy", npy(">i4", LENGTHS)),
    ],
)
def test_files(name: str, data: bytes, tmp_path: Path) -> None:
    """Lengths are read from every kind of file; together they are a step."""
    (tmp_path / name).write_bytes(data)
    instance = parsed(f"{HEAD}lengths: {{file: {name}}}", tmp_path)
    assert classes(instance) == [(5, 3), (32, 1), (700, 2)]


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("a.npy", npy("<f8", LENGTHS), "values of type <f8"),
        ("a.npy", EIGHT[:-1], "no whole array as numpy writes it"),
        ("a.npy", npy("<i8", [3, 0]), "0; allowed"),
        ("a.npy", b"\x93NUMPY\x01\x00\x76\x00" + b"(" * 118, "no whole array as numpy writes it"),
        ("a.csv", b"length\nlength\n5\n", "a.csv:2:1: 'length'"),
        ("a.csv", b'"' + b"1" * 200_000, "field larger than field limit"),
        ("a.csv", b"9" * 5000, "a.csv:1:1: '999"),
        ("a.jsonl", b"[" * 100_000, "a.jsonl:1:1: '[["),
    ],
)
def test_hostile_files(name: str, data: bytes, found: str, tmp_path: Path) -> None:
    """A file that is no list of lengths is refused in one line; more such are in tests/data."""
    (tmp_path / name).write_bytes(data)
    told = refusal(lambda: parsed(f"{HEAD}lengths: {{file: {name}}}", tmp_path))
    assert found in told
    assert "\n" not in told


@recorded("length_classes")
def test_classes_are_the_recorded_ones_and_never_shorter() -> Cases:
    """As many sequences; of the k longest, for every k, none counts as shorter than it is.

    Of log-normal distributions so many.
    """
    for seed in range(12):
        random = Random(seed)
        lengths = [int(random.lognormvariate(5, 1.5)) + 1 for _ in range(300)]
        counts, number = dict(sorted(Counter(lengths).items())), random.randint(1, 40)
        buckets = classes_of(counts, number)
        put = [bucket.up_to for bucket in reversed(buckets) for _ in range(bucket.count)]
        assert all(a >= b for a, b in zip(put, sorted(lengths, reverse=True), strict=True))
        median, longest = random.randint(100, 4000), random.randint(5000, 40000)
        normal = log_normal_classes(median, random.uniform(0.2, 2), longest, 1000, number)
        assert sum(bucket.count for bucket in normal) == 1000
        short = log_normal_classes(3, 0.5 + seed / 10, 4, 100, 10)
        made = [buckets, classes_of(counts, number, 512), normal, short]
        yield f"{seed}", [*map(digest, made), *map(len, made)]
