"""The benchmark of policies plays the same failures on the same instance."""

import sys

import pytest

from bench import policies
from bench.__main__ import main
from bench.policies import POLICIES, measured
from solver.interrupt import NoTimeError
from solver.replay.policies import instance_with
from tests.small_instances import random_instance


def test_every_policy_is_measured_on_every_interval() -> None:
    """Runs are equally long: with four nodes the second failure is the end."""
    records = measured(instance_with(random_instance(0), (4,)), ["10m", "1h"], None, limit_s=60)
    lengths = {(p, i): 1200 if i == "10m" else 7200 for p in POLICIES for i in ("10m", "1h")}
    keys = [(record["policy"], record["interval"]) for record in records]
    assert keys == list(lengths)
    for key, record in zip(keys, records, strict=True):
        assert sum(record["time_by_cause_s"].values()) == pytest.approx(lengths[key])
        assert record["samples_per_s"] == pytest.approx(record["samples"] / lengths[key])


def test_bug_a_search_out_of_time_ended_in_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What hetplan cannot do, a benchmark says in one line, with hetplan's exit code."""

    def late(*_: object) -> None:
        raise NoTimeError("no recovery found within the limit; raise --time-limit")

    monkeypatch.setattr(policies, "measured", late)
    monkeypatch.setattr(sys, "argv", ["bench", "policies", "oobleck_gpt3_2_7b", "--every", "10m"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 4
    assert capsys.readouterr().err == (
        "error: no recovery found within the limit; raise --time-limit\n"
    )
