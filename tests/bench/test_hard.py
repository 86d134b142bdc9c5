"""The benchmark of hard clusters: its instances, its best values, what contradicts them."""

import json

from bench.hard import BEST_KNOWN, INSTANCES, contradiction, improved
from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from formulations.instance.load import load_instance
from formulations.space import configs
from solver.graph.placements import StageZones
from solver.graph.problem import Intervals
from solver.heuristics.config_search import LONGEST_NS, ConfigSearch, start_orders
from solver.heuristics.time_tables import TimeTables
from solver.heuristics.trial import PathPool
from solver.search.enumeration import enumerate_config


def costs_of(name: str, *figures: int) -> CostTables:
    """Costs of an instance's configuration with this tp, dp, pp, micro-batch size, ZeRO stage."""
    instance = load_instance(INSTANCES / f"{name}.yaml")
    [config] = [
        config
        for config in configs(instance)
        if (config.widest_tp, config.dp, config.pp, config.micro_batch, config.zero) == figures
    ]
    return TimeTables(instance).costs(config)


def test_every_instance_is_known_and_says_that_it_is_invented() -> None:
    known, files = json.loads(BEST_KNOWN.read_text(encoding="utf-8")), INSTANCES.glob("*.yaml")
    assert len(known) == 12
    assert {path.stem for path in files if "invented" in load_instance(path).source} == {*known}
    assert all(0 < best["bound_ns"] <= best["step_time_ns"] for best in known.values())


def test_best_values_only_get_better() -> None:
    """A step of 10 and a bound of 8 are known: no step may be below, no bound above."""
    known = {"x": {"step_time_ns": 10.0, "bound_ns": 8.0}}
    for step, bound, wrong in ((10, 8, 0), (12, 10, 0), (7, 7, 1), (12, 11, 1)):
        figures = {"instance": "x", "step_time_ns": step, "bound": bound, "best_known": known["x"]}
        assert (contradiction(figures) is not None) == wrong
    records = [("x", 9, 8.5), ("y", 5, 1.0), ("z", None, None)]
    fields = [dict(zip(("instance", "step_time_ns", "bound"), r, strict=True)) for r in records]
    assert improved(known, fields) == {
        "x": {"step_time_ns": 9.0, "bound_ns": 8.5},
        "y": {"step_time_ns": 5.0, "bound_ns": 1.0},
    }


def test_bug_starts_evened_out_work_alone() -> None:
    """The best start on slow links took 2.93 s where the best plan of the config takes 1.361 s."""
    costs = costs_of("slow_links_96_gpus", 8, 4, 3, 8, 0)
    search = ConfigSearch(costs, PathPool())
    orders = start_orders(costs.config.nodes_used)
    states = [search.start(order, LONGEST_NS) for order in orders]
    best = min((state for state in states if state), key=lambda state: state.step_time_ns)
    assert best.step_time_ns < 1.5e9
    assert search.descend(best, lambda: False).step_time_ns <= 1_360_772_117


def test_bug_no_bound_knew_what_crosses_between_zones() -> None:
    """The best config of two zones stayed open: eight flows share the link, no stage spans it."""
    costs, best_ns = costs_of("zones_64_gpus", 1, 8, 8, 2, 1), 396_087_144
    assert StageZones(Placer(costs)).split_by(best_ns)
    answer = enumerate_config(Intervals(costs), best_ns + 1, 0.0, lambda: False)
    assert (answer.complete, answer.step_time_ns) == (True, best_ns)
