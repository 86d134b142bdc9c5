"""Pipeline schedules: fixed operation orders, the graphs they induce, and paths of these graphs.

A schedule is one module with its order, and an entry of `registry` with what it states of itself.
"""

from formulations.schedules.graph import Level, ScheduleGraph, schedule_graph
from formulations.schedules.operations import Kind, Operation
from formulations.schedules.paths import (
    PathCounts,
    device_path,
    last_down,
    path_counts,
    returned,
    turns,
)
from formulations.schedules.registry import (
    SCHEDULES,
    Held,
    device_order,
    held,
    in_flight,
    stage_moments,
)

__all__ = [
    "SCHEDULES",
    "Held",
    "Kind",
    "Level",
    "Operation",
    "PathCounts",
    "ScheduleGraph",
    "device_order",
    "device_path",
    "held",
    "in_flight",
    "last_down",
    "path_counts",
    "returned",
    "schedule_graph",
    "stage_moments",
    "turns",
]
