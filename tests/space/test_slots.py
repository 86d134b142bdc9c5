"""How the GPUs of a node may share a stage, and which orders of nodes a target runs."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise, permutations, product

import pytest

from formulations.instance import Instance
from formulations.instance.targets import TARGETS, Target
from formulations.plan import ByPlace, Configuration, Degrees, Group, Recomputed
from formulations.space import configs
from formulations.space.slots import (
    Layout,
    apart,
    layout_plan,
    layouts,
    limits_orders,
    mesh_fault,
    runs_degrees,
    runs_order,
    slot_degrees,
    slots_of,
    stage_places,
)
from tests.brute_force import meshes_run
from tests.export_cases import UNTIED, instance_of
from tests.random_spaces import random_space
from tests.recorded import Cases, as_recorded, digest, recorded
from tests.seeds import few_and_many
from tests.stage_degrees import (
    Bench,
    meshed_groups,
    meshed_instance,
    stage_instance,
    unlike_configs,
)


@pytest.mark.parametrize("target", TARGETS)
@recorded("slots")
def test_slots_are_the_recorded_ones(target: Target) -> Cases:
    """Degrees of slots that fill nodes of some GPUs, and places of stages."""
    for seed in range(0, 10, 3):
        instance = random_space(seed, target)
        by_size = {group.gpus_per_node: group for group in instance.cluster.groups}
        groups = [by_size[gpus] for gpus in sorted(by_size)]
        config = next(configs(instance))
        places = (stage_places(instance, config.but(micro_batch=b)) for b in (1, 2, 4, 6))
        slots = [[slot_degrees(instance, g, cp) for g in groups] for cp in (1, 2)]
        yield f"{target} {seed}", [digest(slots), digest([*places])]


@recorded("slots")
def test_meshes_of_two_degrees_are_the_recorded_ones() -> Cases:
    """What FlagScale cannot run of tensor groups and parts of unlike stages, and why."""
    sizes = [Degrees(tp=1), Degrees(tp=2), *(Degrees(tp=1, parts=parts) for parts in (2, 3, 4))]
    for tied, split in product([False, True], repeat=2):
        instance = instance_of(*([] if tied else [UNTIED])).but(
            search={"sequence_parallel": split, "split_tokens": 1024}
        )
        for first, degrees in product(sizes, repeat=2):
            cases = product((0, 1), (False, True))
            faults = [mesh_fault(instance, zero, first, degrees, last) for zero, last in cases]
            name = f"{first.tp}x{first.parts}, {degrees.tp}x{degrees.parts}"
            yield f"{name}{', tied' * tied}{', split' * split}", faults


def dealt(instance: Instance, config: Configuration, order: tuple[int, ...]) -> list[int]:
    """Node groups of the slots, node by node."""
    groups = instance.cluster.groups
    return [j for j in order for _ in range(groups[j].gpus_per_node // config.degrees[j].width)]


def unlike(seed: int) -> Iterator[tuple[Instance, Configuration]]:
    """Configurations of groups of unlike degrees for FlagScale, whether it runs them or not."""
    instance = meshed_groups(seed)
    for config in unlike_configs(instance.but(search={"target": "any"}), 4)[:40]:
        yield instance, config


def test_orders_that_run_are_those_whose_stages_are_meshes() -> None:
    """Of all orders, by the rules written again; `apart` forbids the others of a listed config."""
    runs = stays = 0
    for seed in range(12):
        for instance, config in unlike(seed):
            assert limits_orders(instance, config)
            assert not limits_orders(instance.but(search={"target": "any"}), config)
            some = False
            nodes = [j for j, count in enumerate(config.nodes_used) for _ in range(count)]
            for order in set(permutations(nodes)):
                slots = dealt(instance, config, order)
                replicas = [
                    [config.degrees[j] for j in slots[r :: config.dp]] for r in range(config.dp)
                ]
                expected = meshes_run(instance, config.zero, replicas)
                assert runs_order(instance, config, order) == expected
                pairs = apart(instance, config)
                kept = not any(slots[s] == i and slots[t] == j for (s, i), (t, j) in pairs)
                assert kept == expected or not runs_degrees(instance, config, config.zero)
                runs, stays, some = runs + expected, stays + (not expected), some or expected
            assert runs_degrees(instance, config, config.zero) >= some
    assert min(runs, stays) > 20


def test_degrees_that_some_order_runs_are_the_recorded_ones() -> None:
    figures = {
        f"degrees {seed}": [
            [int(runs_degrees(instance, config, zero)) for instance, config in unlike(seed)]
            for zero in (0, 1)
        ]
        for seed in range(12)
    }
    as_recorded("slots", figures)


def layouts_by_gpu(bench: Bench) -> Iterator[tuple[Layout, list[list[Group]]]]:
    """Every layout that fills the nodes GPU by GPU, and the GPUs of its stages and replicas."""
    cluster = bench.instance.cluster
    for layout in bench.layouts():
        nodes = [-1, *(stage[0].node for stage in layout)]
        together = [a == b for a, b in pairwise(nodes)]
        code = tuple(
            2 * stage[0].column + near for stage, near in zip(layout, together, strict=True)
        )
        taken, stages, at = dict[int, int](), list[list[Group]](), dict[int, int]()
        for stage in layout:
            groups = list[Group]()
            for slot in stage:
                j, degrees = bench.columns[slot.column]
                if slot.node not in at:
                    at[slot.node] = cluster.first_node[j] + sum(
                        cluster.node_groups[node] == j for node in at.values()
                    )
                first = taken.get(slot.node, 0)
                taken[slot.node] = first + degrees.width
                gpus = tuple(range(first, first + degrees.width))
                groups.append(Group(node=at[slot.node], gpus=gpus))
            stages.append(groups)
        yield code, stages


def recomputing_nothing(asked: dict[int, int], k: int, place: int, *_: object) -> list[Recomputed]:
    """Notes the place that a stage is asked for."""
    asked[k] = place
    return [Recomputed(way="none", blocks=0)]


@pytest.mark.parametrize("seeds", few_and_many(range(16), 4))
def test_layouts_are_those_that_fill_the_nodes(seeds: Sequence[int]) -> None:
    """Stage after stage, behind the one before or on new nodes, until no GPU is left.

    All other numbers for the stages, of few, are no layout and have no slots.
    """
    number = 0
    for seed in seeds:
        for instance in (stage_instance(seed), meshed_instance(seed)):
            staged = [config for config in configs(instance) if config.per_stage]
            for config in staged[:: 1 + len(staged) // 6]:
                bench = Bench(instance, config)
                places = ByPlace(instance, config, tuple(bench.columns))
                expected = dict(layouts_by_gpu(bench))
                assert set(layouts(places)) == set(expected)
                number += len(expected)
                codes = range(2 * len(places.places))
                few = len(codes) ** config.pp < 1000
                for code in product(codes, repeat=config.pp) if few else expected:
                    assert slots_of(places, code) == expected.get(code)
                for code in [*expected][:3]:
                    asked = dict[int, int]()
                    choose = partial(recomputing_nothing, asked)
                    cuts, shares = range(len(code) + 1), (1,) * config.dp
                    layout_plan(places, code, cuts, shares, choose)
                    assert [asked[k] for k in range(len(code))] == [n // 2 for n in code]
                    assert slots_of(places, code[1:]) is None
                    assert slots_of(places, (*code, code[-1])) is None
    assert number > 10
