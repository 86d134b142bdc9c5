"""Where stages with degrees of their own may stand."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product

import pytest

from formulations.plan import ByPlace, Group
from formulations.space import configs
from formulations.space.layouts import Layout, layouts, slots_of
from tests.seeds import few_and_many
from tests.stage_degrees import Bench, meshed_instance, stage_instance


def dealt(bench: Bench) -> Iterator[tuple[Layout, list[list[Group]]]]:
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
                expected = dict(dealt(bench))
                assert set(layouts(places)) == set(expected)
                number += len(expected)
                codes = range(2 * len(places.places))
                few = len(codes) ** config.pp < 1000
                for code in product(codes, repeat=config.pp) if few else expected:
                    assert slots_of(places, code) == expected.get(code)
                for code in [*expected][:3]:
                    assert slots_of(places, code[1:]) is None
                    assert slots_of(places, (*code, code[-1])) is None
    assert number > 10
