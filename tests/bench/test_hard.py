"""The benchmark of hard clusters: its instances, its best values, what contradicts them."""

import json

from bench.hard import BEST_KNOWN, INSTANCES, contradiction, improved
from bench.searches import Figures
from formulations.costs.placement import Placer
from formulations.instance.load import load_instance
from formulations.plan import Configuration
from formulations.space import configs
from solver.graph.placements import StageZones
from solver.graph.problem import Intervals
from solver.heuristics.config_search import LONGEST_NS, ConfigSearch
from solver.heuristics.neighbours import start_orders
from solver.heuristics.time_tables import TimeTables
from solver.heuristics.trial import PathPool
from solver.search.enumeration import enumerate_config

FILES = sorted(INSTANCES.glob("*.yaml"))


def config_of(name: str, *figures: int) -> tuple[TimeTables, Configuration]:
    """The configuration of an instance with this tp, dp, pp, micro-batch size and ZeRO stage."""
    instance = load_instance(INSTANCES / f"{name}.yaml")
    [found] = [
        one
        for one in configs(instance)
        if (one.widest_tp, one.dp, one.pp, one.micro_batch, one.zero) == figures
    ]
    return TimeTables(instance), found


def test_every_instance_is_known_and_says_that_it_is_invented() -> None:
    """A dozen, with a step and a bound that do not contradict each other."""
    known = json.loads(BEST_KNOWN.read_text(encoding="utf-8"))
    assert sorted(known) == [path.stem for path in FILES]
    assert len(FILES) >= 12
    assert all(0 < one["bound_ns"] <= one["step_time_ns"] for one in known.values())
    assert all("invented" in load_instance(path).source for path in FILES)


def test_best_values_only_get_better() -> None:
    """A step of 10 and a bound of 8 are known: no step may be below, no bound above."""
    known = {"x": {"step_time_ns": 10.0, "bound_ns": 8.0}}
    pairs = [(10, 8), (12, 10), (7, 7), (12, 11)]
    ones: list[Figures] = [{"instance": "x", "step_time_ns": a, "bound": b} for a, b in pairs]
    wrong = [contradiction(one | {"best_known": known["x"]}) is not None for one in ones]
    assert wrong == [False, False, True, True]
    more: list[Figures] = [
        {"instance": "x", "step_time_ns": 9, "bound": 8.5},
        {"instance": "y", "step_time_ns": 5, "bound": 1.0},
        {"instance": "z", "step_time_ns": None, "bound": None},
    ]
    assert improved(known, more) == {
        "x": {"step_time_ns": 9.0, "bound_ns": 8.5},
        "y": {"step_time_ns": 5.0, "bound_ns": 1.0},
    }


def test_bug_starts_evened_out_work_alone() -> None:
    """The best start on slow links took 2.93 s where the best plan of the config takes 1.361 s."""
    times, config = config_of("slow_links_96_gpus", 8, 4, 3, 8, 0)
    search = ConfigSearch(times.costs(config), PathPool())
    orders = start_orders(config.nodes_used, search.nodes_per_stage)
    states = [search.starts.start(order, LONGEST_NS) for order in orders]
    best = min((one for one in states if one), key=lambda one: one.step_time_ns)
    assert best.step_time_ns < 1.5e9
    assert search.descend(best, lambda: False).step_time_ns <= 1_360_772_117


def test_bug_no_bound_knew_what_crosses_between_zones() -> None:
    """The best config of two zones stayed open: eight flows share the link, no stage spans it."""
    times, config = config_of("zones_64_gpus", 1, 8, 8, 2, 1)
    tables = times.costs(config)
    best_ns = 396_087_144
    assert StageZones(Placer(tables)).split_by(best_ns)
    answer = enumerate_config(Intervals(tables), best_ns + 1, 0.0, lambda: False)
    assert (answer.complete, answer.step_time_ns) == (True, best_ns)
