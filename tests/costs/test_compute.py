"""Times of layers by the analytic model, and where a profile does not have all of them."""

from pathlib import Path

import pytest

from formulations.costs.compute import TimeColumns, analytic_s
from formulations.costs.experts import members_of
from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.plan import uniform_degrees
from solver.options import SolveOptions
from solver.result import Status
from solver.search.driver import solve
from tests.chain_instances import SLOW, chain_instance
from tests.command_line import output
from tests.conftest import text_of
from tests.oracles.agreement import pages_suffice
from tests.oracles.cases import drawn
from tests.recorded import Cases, recorded, summary

test_pages_suffice = pages_suffice(2, 17, 23, 57)


@recorded("compute")
def test_times_are_the_recorded_ones() -> Cases:
    """Sums over layers of both passes by the analytic model, by group and way to recompute."""
    for name, instance, plan, _ in drawn(2, 7, 13, 17, 23, 24, 57):
        config, workload = plan.config, instance.workload
        if not config.per_stage:
            columns, members = TimeColumns(instance), members_of(instance, config)
            at = config.degrees, config.micro_batch
            times = [columns.times(*at, way, members) for way in ("none", "selective", "full")]
            arrays = [[t.forward_ns, t.backward_ns, t.weight_ns] for t in times]
            (group, *_) = instance.cluster.groups
            alone = [
                list(analytic_s(run.layer, group, workload.precision, 2, 3, True))
                for run in workload.layer_runs
            ]
            yield name, [summary(arrays), alone]
    # 30 days in micro-batches of two are within the limit of 52
    slow = chain_instance([round(30 * 86_400 / 0.012)], [SLOW])
    assert TimeColumns(slow).times(uniform_degrees(slow, 1), 2, "none").forward_ns.any()


Degrees = list[int]


def written(sizes: tuple[int, int], degrees: tuple[Degrees, Degrees], more: str = "") -> str:
    """Two nodes of so many GPUs, whose types have times at these degrees; 1 ms on the first."""
    gpus = ("A100-40", "V100-32")
    times = {gpu: {tp: {1: ms} for tp in degrees[ms - 1]} for ms, gpu in enumerate(gpus, 1)}
    groups = [
        {"name": gpu, "gpu": gpu, "gpus_per_node": size, "nodes": 1, "inter_node": "Ethernet 40G"}
        for gpu, size in zip(gpus, sizes, strict=True)
    ]
    text = text_of("lacking.txt")
    by_kind = dict.fromkeys(("embedding", "block", "head"), times)
    return text.replace("GROUPS", str(groups)).replace("TIMES", str(by_kind)) + more


def lacking(sizes: tuple[int, int], degrees: tuple[Degrees, Degrees], more: str = "") -> Instance:
    return parse_instance(written(sizes, degrees, more), "x.yaml", Path())


def forward_ns(instance: Instance, tp: int) -> list[int]:
    times: list[int] = (
        TimeColumns(instance).times(uniform_degrees(instance, tp), 1, "none").forward_ns[1]
    )
    return [int(time_ns) for time_ns in times]


def test_bug_profile_without_a_degree_that_small_nodes_cannot_hold() -> None:
    """Nodes of 4 GPUs need no times at tp 8, beside nodes of 8: their column shows the others'."""
    instance = lacking((8, 4), ([1, 2, 4, 8], [1, 2, 4]))
    assert forward_ns(instance, 8) == [1_000_000, 1_000_000]
    assert forward_ns(instance, 4) == [1_000_000, 2_000_000]
    assert solve(instance, SolveOptions(gap=0.1)).status is Status.OPTIMAL


def test_times_that_plans_need_are_missed() -> None:
    """Nodes of 8 GPUs can be filled by groups of 8: without times that is an error of the input."""
    instance = lacking((8, 4), ([1, 2, 4, 8], [1, 2, 4]))
    first, second = instance.cluster.groups
    swapped = {"groups": (first.but(gpu=second.gpu), second.but(gpu=first.gpu))}
    line = "^profile: no times on V100-32 at tensor-parallel degree 8; allowed: "
    with pytest.raises(InstanceError, match=line):
        forward_ns(instance.but(cluster=swapped), 8)


def test_bug_templates_of_a_profile_without_a_degree(tmp_path: Path) -> None:
    """A stage takes no 4 of a node's 6 GPUs where the profile has no times at tp 4."""
    path = tmp_path / "lacking.yaml"
    path.write_text(written((8, 6), ([1, 2, 4, 8], [1, 2])), encoding="utf-8")
    out = output("templates", path, "--faults", 0, "--gap", 0.5)
    assert "1 V100-32" in out


def test_partial_profile_is_completed_where_the_user_says_so() -> None:
    """Missing curves are the analytic model's, with its traffic; the others stay as measured."""
    sizes, degrees = (8, 8), ([1, 2, 4], [1])
    with pytest.raises(InstanceError, match="or missing_times: analytic"):
        lacking(sizes, degrees, "search: {tensor_parallel: [1, 2]}\n")
    instance = lacking(sizes, degrees, "  missing_times: analytic\n")
    assert instance.search.tensor_parallel == (1, 2, 4, 8)
    bare = instance.but(profile=None)
    for tp, measured in ((1, (1_000_000, 2_000_000)), (2, (1_000_000, None)), (8, (None, None))):
        modelled = forward_ns(bare, tp)
        expected = [one or modelled[j] for j, one in enumerate(measured)]
        assert forward_ns(instance, tp) == expected
        origins = TimeColumns(instance).times(uniform_degrees(instance, tp), 1, "none").origins
        assert origins == {"measured" if one else "analytic" for one in measured}
