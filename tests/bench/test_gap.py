"""The gap benchmark: its arithmetic, and one run in a process of its own."""

import pytest

from bench.fleets import CASES, contradicted, measured
from bench.gap import METHODS, above_bound, compare
from formulations.instance.load import load_instance
from solver.options import SolveOptions
from tests.seeds import one_each
from tests.small_instances import random_instance


def test_distances() -> None:
    """110 is 10 % above 100; without plan or bound there is none."""
    assert above_bound(110.0, 100.0) == pytest.approx(0.1)
    assert [above_bound(*pair) for pair in ((None, 1.0), (1.0, None), (1.0, 0.0))] == [None] * 3


@pytest.mark.slow
def test_records_have_plan_options_hardware_and_versions() -> None:
    """One rule-of-thumb run on a tiny instance, in its own process."""
    options = SolveOptions(time_limit_s=60)
    [figures] = compare("tiny", random_instance(0), ["megatron"], options)
    assert (figures["status"], figures["termination"]) == ("feasible", "heuristic")
    assert figures["step_time_ns"] > 0
    assert figures["peak_rss_bytes"] > 1 << 20
    assert figures["options"]["time_limit_s"] == 60
    assert {"cpu", "cores", "memory_bytes"} <= figures["hardware"].keys()
    assert {"python", "numpy", "ortools"} <= figures["versions"].keys()


@pytest.mark.parametrize("seed", one_each(range(8), 8))
def test_no_rule_of_thumb_beats_the_exact_search(seed: int) -> None:
    instance = random_instance(seed)
    results = {name: method(instance, SolveOptions()) for name, method in METHODS.items()}
    best = results["exact"]
    assert best.status in ("optimal", "infeasible")
    objectives = [r.objective for r in results.values() if r.objective is not None]
    assert min(objectives, default=None) == best.objective


def test_every_case_has_as_many_nodes_as_it_says() -> None:
    """nodes_0030 has 30, and a batch of 32 sequences a node."""
    for path in CASES.glob("*.yaml"):
        instance, nodes = load_instance(path), int(path.stem.removeprefix("nodes_"))
        sizes = (len(instance.cluster.node_names), instance.workload.global_batch)
        assert sizes == (nodes, 32 * nodes)


def test_a_small_case_is_measured_and_not_contradicted() -> None:
    """30 nodes; HiGHS agrees, and both fleets verify."""
    figures = measured(CASES / "nodes_0030.yaml", faults=5, time_limit_s=20)
    assert figures["verified"]
    assert not contradicted(figures)
    assert contradicted(figures | {"milp_step_ns": figures["step_ns"] - 1})
    assert contradicted(figures | {"verified": False})
