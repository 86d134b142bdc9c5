"""Tiny instances by what their plan spaces hold: the cases of all tests of whole searches."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from formulations.instance import Instance
from tests.cramped import one_degree
from tests.expert_instances import expert_instance
from tests.random_configs import scheduled, slower, zoned
from tests.small_instances import random_instance
from tests.unlike_degrees import unlike_instance
from tests.widened import widened

THREE_STAGES = {"pipeline_parallel": (1, 2, 3)}


def plain(seed: int) -> Instance:
    """At most three stages, so that brute force stays quick; steps of minutes for odd seeds."""
    instance = random_instance(seed).but(search=THREE_STAGES)
    return slower(instance) if seed % 2 else instance


def all_schedules(seed: int) -> Instance:
    """1F1B, GPipe, interleaved and ZB-H1, or interleaved alone; in zones or not."""
    instance = scheduled(random_instance(seed), "interleaved", seed).but(search=THREE_STAGES)
    if seed % 24:
        instance = instance.but(search={"schedule": ("1f1b", "gpipe", "interleaved", "zb-h1")})
    return zoned(instance, seed) if seed % 3 == 0 else instance


def in_zones(seed: int) -> Instance:
    """Nodes in several zones."""
    return zoned(random_instance(seed), seed).but(search=THREE_STAGES)


def experts(seed: int) -> Instance:
    """Experts and sequences that GPUs share, in zones or not."""
    instance = expert_instance(seed)
    return zoned(instance, seed) if seed % 4 == 1 else instance


def cramped(seed: int) -> Instance:
    """Stages recompute as little as fits."""
    return one_degree(seed, ("1f1b", "gpipe", "zb-h1")[seed % 3])


def cramped_chunks(seed: int, **fields: object) -> Instance:
    """Devices with several chunks recompute as little as fits."""
    return one_degree(seed, "interleaved", **fields)


def unlike_groups(seed: int) -> Instance:
    """Node groups have tensor-parallel degrees and parts of their own."""
    return unlike_instance(seed).but(search=THREE_STAGES)


SPACES: dict[str, Callable[[int], Instance]] = {
    "plain": plain,
    "schedules": all_schedules,
    "zones": in_zones,
    "experts": experts,
    "strategies": widened,
    "cramped": cramped,
    "cramped chunks": cramped_chunks,
    "unlike groups": unlike_groups,
}


def cases(every: int = 22) -> list[Any]:
    """Parameters name and seed, of which the first of every so many are not slow."""
    return [
        pytest.param(name, seed, marks=[pytest.mark.slow] * (seed % every > 0), id=f"{name} {seed}")
        for name, seed in product(SPACES, range(44))
    ]
