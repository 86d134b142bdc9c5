"""The benchmark of fleets: its cases, figures and verdict."""

from bench.fleets import CASES, contradicted, line, measured
from formulations.instance.load import load_instance


def test_every_case_has_as_many_nodes_as_it_says() -> None:
    """nodes_0030 has 30, and a batch of 32 sequences a node."""
    for path in CASES.glob("*.yaml"):
        instance = load_instance(path)
        nodes = int(path.stem.removeprefix("nodes_"))
        assert instance.name == f"fleets_{path.stem}"
        assert len(instance.cluster.node_names) == nodes
        assert instance.workload.global_batch == 32 * nodes


def test_a_small_case_is_measured_and_not_contradicted() -> None:
    """30 nodes; HiGHS agrees, and both fleets verify."""
    figures = measured(CASES / "nodes_0030.yaml", faults=5, time_limit_s=20)
    assert figures["nodes"] == 30
    assert figures["verified"]
    assert not contradicted(figures)
    assert "nodes_0030: templates" in line(figures)
    assert contradicted(figures | {"milp_step_ns": figures["step_ns"] - 1})
    assert contradicted(figures | {"verified": False})
