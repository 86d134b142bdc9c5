"""Records and processes of benchmarks."""

import sys

from bench.records import ROOT, config_text
from bench.start import CASES, command, timed
from bench.workers import estimated_s
from formulations.plan import Degrees
from tests.small_instances import plain_config


def test_commands_solve_stored_instances() -> None:
    """From the repository's root, with a relative path; the files that they name exist."""
    words = command(CASES["small"], 30)
    assert words[1:4] == ["cli.py", "solve", "instances/hetero_small.yaml"]
    assert all((ROOT / command(case, 1)[3]).is_file() for case in CASES.values())


def test_time_memory_exit_code_and_output_are_measured() -> None:
    figures, output = timed([sys.executable, "-c", "print('one'); raise SystemExit(3)"])
    assert (output, figures["exit_code"]) == ("one\n", 3)
    assert figures["wall_s"] > 0
    assert figures["peak_rss_bytes"] > 1 << 20


def test_rounds_of_workers_wait_for_each_other() -> None:
    """10 s, of which 7 and 2 are two rounds: 1 s alone, then 4 and 1 on two workers.

    3 2 2 on two workers: the second is free at 2 and ends at 4.
    """
    assert estimated_s(10, {100: [3, 2, 2], None: [1, 1]}, 2) == 1 + 4 + 1


def test_bug_tables_died_of_configs_with_degrees_per_group() -> None:
    """Records have the configuration as plan files do; old ones have one tensor degree."""
    degrees = (Degrees(tp=2), Degrees(tp=1, parts=4))
    config = plain_config((1, 1), degrees=degrees, dp=2, pp=4, micro_batch=8)
    assert config_text(config.model_dump(mode="json")) == "2 / 1*4 x 2 x 4, 8"
    chunks = config.but(vpp=2, degrees=degrees[:1] * 2)
    assert config_text(chunks.model_dump(mode="json")) == "2 x 2 x 4 x 2, 8"
    assert config_text({"tp": 1, "dp": 2, "pp": 4, "micro_batch": 8}) == "1 x 2 x 4, 8"
    assert config_text(None) == ""
