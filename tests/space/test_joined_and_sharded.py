"""Nodes of several machines, and replicas in several shard groups (HSDP).

Launch files, and who runs them; best plans are tests/search's.
"""

from pathlib import Path

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance
from formulations.space.launch import able
from solver.evaluate.run_plan import read_run
from solver.search.driver import solve
from solver.simulate import step_time_ns
from tests.conftest import present, stored_instance
from tests.export_cases import UNTIED
from tests.space.test_launchable import exported, read_back


def machines_of(cluster: str, search: str) -> Instance:
    """GPT-2 on nodes of A100."""
    return stored_instance("machines", untied=UNTIED, cluster=cluster, search=search)


@pytest.mark.parametrize("target", ["megatron", "torchtitan"])
def test_jobs_run_on_all_machines(target: str, tmp_path: Path) -> None:
    """Hosts are machines, ranks count their GPUs, and `evaluate` makes the plan of them."""
    search = f"target: {target}, context_parallel: [2], tensor_parallel: [4]"
    instance = machines_of("joined_nodes: 2", search)
    (group,) = instance.cluster.groups
    assert (group.nodes, group.gpus_per_node, group.price_usd_per_hour) == (2, 8, 2)
    plan = present(solve(instance).plan)
    texts = exported(instance, plan, target)  # type: ignore[arg-type]
    assert texts["hosts.txt"].split() == ["a-0", "a-1", "a-2", "a-3"]
    ranks = [line.split(",")[1:3] for line in texts["ranks.csv"].splitlines()[1:]]
    assert ranks == [[f"a-{machine}", str(gpu)] for machine in range(4) for gpu in range(4)]
    assert read_back(instance, texts, tmp_path).replicas == plan.replicas


@pytest.mark.parametrize(
    ("degrees", "launchers"),
    [
        ("zero=1", ["megatron"]),
        ("pp=2,zero=1", ["megatron", "torchtitan"]),
        ("zero=2", ["torchtitan"]),
        ("zero=3", ["torchtitan"]),
    ],
)
def test_what_is_exported_is_read_back(degrees: str, launchers: list[str], tmp_path: Path) -> None:
    """By whoever launches shard groups; others say that they have none."""
    instance = machines_of("", "target: any")
    plan = read_run(instance, stated=f"{degrees},micro_batch=2,optimizer_instances=2").plan
    assert able(instance, plan) == launchers
    for target in launchers:
        narrow = machines_of("", f"target: {target}")
        (folder := tmp_path / target).mkdir()
        again = read_back(narrow, exported(narrow, plan, target), folder)  # type: ignore[arg-type]
        assert again.config == plan.config.but(recompute=again.config.recompute)
        costs = (plan_costs(instance, which) for which in (plan, again))
        assert len({step_time_ns(each) for each in costs}) == 1
