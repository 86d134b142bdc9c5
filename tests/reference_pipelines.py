"""Pipelines whose optimum others proved, as configurations of one replica in a fixed order."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formulations.costs.placement import PlacementCosts, Placer
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import Given
from solver.search.engines import ModelEngine
from tests.loop_checks import solve_config
from tests.small_instances import gpu, instance_of, layer, nodes_of, plain_config, workload


def pipeline_of(case: dict[str, Any]) -> tuple[CostTables, tuple[int, ...]]:
    """Tables and node order of one reference pipeline: a node group per slowness."""
    slowness = sorted(set(case["stage_slowness"]))
    one = gpu("one", 100, 1000)
    groups = tuple(
        nodes_of(one, name=f"slow{slow}", nodes=case["stage_slowness"].count(slow))
        for slow in slowness
    )
    chain = [layer("block", 1, 1, 0) for _ in case["layer_forward"]]
    work = workload(chain, case["micro_batches"], 1, tied=False)
    instance = instance_of(case["name"], work, groups)
    nodes_used = tuple(group.nodes for group in groups)
    config = plain_config(nodes_used, pp=len(case["stage_slowness"]))
    tables = build_tables(instance, config)
    timed = replace(
        tables,
        forward_ns=np.outer(case["layer_forward"], slowness),
        backward_ns=np.outer(case["layer_backward"], slowness),
        optimizer_ns=0 * tables.optimizer_ns,
    )
    return timed, tuple(slowness.index(slow) for slow in case["stage_slowness"])


def solves_reference(
    engine: ModelEngine, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch, unit: int = 1
) -> bool:
    """Whether the loop proves the stored optimum of a pipeline, its times in units of `unit` ns."""
    send = unit * np.array(case["send_forward"])[None, :, None]
    placed = Placer.costs

    def costs(placer: Placer, order: Sequence[int]) -> PlacementCosts:
        return replace(placed(placer, order), send_ns=send)

    monkeypatch.setattr(Placer, "costs", costs)
    tables, order = pipeline_of(case)
    slower = replace(
        tables, forward_ns=unit * tables.forward_ns, backward_ns=unit * tables.backward_ns
    )
    outcome = solve_config(slower, engine, given=Given(order=order))
    optimum = unit * case["optimal_step_time"]
    return outcome.status == "optimal" and outcome.step_time_ns == outcome.bound_ns == optimum


def reference_cases(reference: Path) -> list[dict[str, Any]]:
    """Single-replica 1F1B pipelines with their proved optimum."""
    cases: list[dict[str, Any]] = json.loads((reference / "splits" / "optimal.json").read_text())[
        "cases"
    ]
    return cases
