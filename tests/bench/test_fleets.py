"""The benchmark of fleets: its cases, figures and verdict."""

from bench.fleets import CASES, contradicted, measured
from formulations.instance.load import load_instance


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
