"""The benchmark of policies plays the same failures on the same instance."""

import sys

import pytest

from bench import policies
from bench.__main__ import main
from bench.policies import POLICIES, line, measured, with_bandwidth
from solver.interrupt import NoTimeError
from solver.replay.policies import instance_with
from tests.small_instances import random_instance


def test_every_policy_is_measured_on_every_interval() -> None:
    """Runs are equally long, their times add up, and a line tells them."""
    instance = instance_with(random_instance(0), (4,))
    found = measured(instance, ["10m", "1h"], None, limit_s=60)
    assert [(one["policy"], one["interval"]) for one in found] == [
        (policy, interval) for policy in POLICIES for interval in ("10m", "1h")
    ]
    for one in found:
        # four nodes: the second failure is the end
        length_s = 1200 if one["interval"] == "10m" else 7200
        assert sum(one["time_by_cause_s"].values()) == pytest.approx(length_s)
        assert one["samples_per_s"] == pytest.approx(one["samples"] / length_s)
        assert one["policy"] in line(one)


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


def test_bandwidth_is_that_between_nodes() -> None:
    """The links inside nodes stay."""
    instance = random_instance(0)
    slow = with_bandwidth(instance, 1e6)
    for group, former in zip(slow.cluster.groups, instance.cluster.groups, strict=True):
        assert group.inter_node.bandwidth_bytes_per_s == 1e6
        assert group.intra_node == former.intra_node
