"""What the user has and wants: workload, cluster, profile, limits."""

from formulations.instance.cluster import Cluster
from formulations.instance.instance import Instance, Limits, Objective
from formulations.instance.machines import GpuType, Link, ZoneLink
from formulations.instance.node_group import NodeGroup
from formulations.instance.profile import Profile, ProfileEntry
from formulations.instance.search import SearchSpace
from formulations.instance.workload import Layer, LayerRun, Workload

__all__ = [
    "Cluster",
    "GpuType",
    "Instance",
    "Layer",
    "LayerRun",
    "Limits",
    "Link",
    "NodeGroup",
    "Objective",
    "Profile",
    "ProfileEntry",
    "SearchSpace",
    "Workload",
    "ZoneLink",
]
