"""What plans say of strategies, sources and terms that their figures rest on."""

import pytest

from formulations.instance import Instance
from formulations.instance.search import Overlap
from solver.report.assumptions import assumptions, flash_lines
from solver.report.naming import degrees_of
from tests.conftest import present, stored_instance
from tests.recorded import as_recorded
from tests.report.shown import PLANS, check_stored, plan
from tests.small_families import mixed
from tests.small_instances import plain_config


def instance(workload: str = "") -> Instance:
    """BERT-large in fp16 on four GPUs."""
    return stored_instance("four_gpus", workload=workload)


def test_strategies_name_what_they_assume() -> None:
    """One line for each, and for what is left unused; of what is hidden, what the plan exchanges.

    A plan, or a front, over GPUs of which some have no flash attention says which plans have it:
    before, one old GPU took it from all without a word.
    """
    shares = {"tensor_parallel": 0.25, "gradient_sync": 0.9, "sharding": 0.61}
    hiding = instance().but(search={"overlap": Overlap(kind="measured", source="test", **shares)})
    figures: dict[str, object] = {"front": [*flash_lines(mixed(0))]}
    for tp, zero, *kept in ((1, 0), (2, 0), (4, 0), (1, 2), (1, 3), (1, 3, "kept")):
        config = plain_config((1,), tp=tp, dp=4 // tp, zero=zero, sync_each_batch=not kept)
        for name, planned in (("plain", instance()), ("hiding", hiding)):
            told = assumptions(planned, config, config.degrees)
            figures[" ".join(map(str, (name, tp, zero, *kept)))] = [*told]
    config = plain_config((1,), tp=1, dp=4)
    for workload in (", optimizer_state: 8bit", ", flash_attention: false"):
        figures[workload] = [*assumptions(instance(workload), config, config.degrees)]
    for used in ((1, 0), (1, 1)):
        config = plain_config(used, tp=1, dp=1)
        figures[f"mixed {used}"] = [*assumptions(mixed(0), config, config.degrees)]
    as_recorded("assumptions", figures)


#: Strategies, sources, terms of renting.
test_what_small_plans_rest_on = check_stored(*PLANS)


@pytest.mark.parametrize("name", PLANS)
def test_spot_prices_that_the_objective_leaves_out_are_named(name: str) -> None:
    """So that nobody takes a plan of least step time for one that looked at them."""
    document = plan(name)
    config, degrees = present(document.config), degrees_of(document)
    assert "spot prices of" not in str([*assumptions(document.instance, config, degrees)])
    by_cost = document.instance.but(objective={"minimize": "cost_per_step"})
    told = str([*assumptions(by_cost, config, degrees)])
    assert ("spot prices of fast, slow: " in told) == (name == "on_spot")
