"""Places of tiny instances, and every template that they allow, by plain enumeration."""

import signal
from collections.abc import Iterator
from itertools import combinations, pairwise, product
from typing import Any

import pytest

from formulations.costs.template_costs import template_costs
from formulations.fleet import Strategy, Template, stage_on
from formulations.instance import Instance
from formulations.node_sharing import NodeSplit
from formulations.plan import Recomputed
from formulations.space.configurations import pipeline_strategies
from solver.graph.gpu_graph import Counts
from solver.graph.places import PlaceCosts, Places, place_costs
from solver.interrupt import Stop
from solver.simulate import pipeline_step_ns
from solver.templates.generate import TemplateOptions
from solver.templates.step_time import TemplateOutcome, best_template
from tests.small_instances import random_instance


def _arrangements(gpus: int, split: NodeSplit, offset: int = 0) -> Iterator[tuple[int, ...]]:
    """Stage sizes in order that fill the GPUs from `offset` on."""
    if offset == gpus:
        yield ()
    for size in range(1, gpus - offset + 1):
        aligned = size & (size - 1) == 0 and offset % size == 0
        if split is NodeSplit.ANY or aligned:
            for rest in _arrangements(gpus, split, offset + size):
                yield size, *rest


def all_templates(places: Places, num_nodes: int) -> Iterator[Template]:
    """Every template of so many nodes, of all mixes and orders of the groups."""
    for order in product(range(len(places.nodes)), repeat=num_nodes):
        if any(order.count(j) > most for j, most in enumerate(places.nodes)):
            continue
        options = [list(_arrangements(places.node_gpus[j], places.split)) for j in order]
        for sizes in product(*options):
            # Node, first GPU and GPUs of every stage
            at = [(i, sum(own[:k]), g) for i, own in enumerate(sizes) for k, g in enumerate(own)]
            for cuts in combinations(range(1, places.num_layers), len(at) - 1):
                layers = pairwise((0, *cuts, places.num_layers))
                stages = (stage_on(run, *where) for run, where in zip(layers, at, strict=True))
                yield Template(node_groups=order, stages=tuple(stages))


def recomputing(
    instance: Instance, strategy: Strategy, template: Template, micro_batches: int
) -> Template | None:
    """The template with what takes least time and fits, stage by stage; None if nothing does."""
    stages = []
    for k, stage in enumerate(template.stages):
        tried = []
        for recomputed in _options(instance, strategy, stage.layers):
            alike = tuple(one.but(recomputed=recomputed) for one in template.stages)
            costs = template_costs(instance, strategy, template.but(stages=alike))
            if costs.used_bytes(micro_batches)[k] <= costs.limit_bytes[k]:
                tried.append((int(costs.backward_ns[k]), alike[k]))
        if not tried:
            return None
        stages.append(min(tried, key=lambda pair: pair[0])[1])
    return template.but(stages=tuple(stages))


def _options(
    instance: Instance, strategy: Strategy, layers: tuple[int, int]
) -> Iterator[Recomputed]:
    """All that a stage may recompute: every block in a way, or the first few in full."""
    blocks = sum(layer.is_block for layer in instance.workload.layers[slice(*layers)])
    for way in strategy.recompute:
        few = way == "full" and strategy.recompute[0] == "none"
        for number in range(blocks + 1) if few else [blocks]:
            yield Recomputed(way=way, blocks=0 if way == "none" else number)


def place_costs_of(seed: int, split: NodeSplit) -> PlaceCosts:
    """Of a tiny instance in micro-batches of one."""
    instance = random_instance(seed)
    return place_costs(instance, next(iter(pipeline_strategies(instance, 1))), split)


def finals_of(places: Places) -> dict[int, list[tuple[int, ...]]]:
    """All node counts by their sum, from 1 on."""
    counts = list(product(*(range(n + 1) for n in places.nodes)))
    return {n: [one for one in counts if sum(one) == n] for n in range(1, sum(places.nodes) + 1)}


def holds_blocks(instance: Instance, template: Template) -> bool:
    """Whether every stage has a block, where the instance asks for one."""
    if instance.search.embedding_only_stages:
        return True
    blocks = [layer.is_block for layer in instance.workload.layers]
    return all(any(blocks[slice(*stage.layers)]) for stage in template.stages)


def values_of_all(
    instance: Instance, options: TemplateOptions, nodes: int, m: int, b: int
) -> Iterator[tuple[Template, int]]:
    """Every template and strategy that fits, with its step."""
    for strategy in pipeline_strategies(instance, b):
        places = place_costs(instance, strategy, options.split).several
        for one in all_templates(places, nodes):
            template = recomputing(instance, strategy, one, m)
            if template is None or not holds_blocks(instance, template):
                continue
            costs = template_costs(instance, strategy, template)
            assert costs.fits(m)
            yield template, pipeline_step_ns(costs, m)


def with_long_optimizers(seed: int, blocking: bool) -> Instance:
    """Two nodes of two GPUs, memory 300 times slower: optimizers outlast the rest of a step."""
    instance = random_instance(seed)
    group = instance.cluster.groups[0]
    slower = group.gpu.memory_bandwidth_bytes_per_s / 300
    gpu = {"memory_bandwidth_bytes_per_s": slower}
    return instance.but(
        cluster={"groups": (group.but(gpus_per_node=2, nodes=2, gpu=gpu),)},
        workload={"global_batch": 4 + seed % 5},
        search={"blocking_sends": blocking},
    )


def interrupted_once(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Ctrl-C comes in the next search for a template; whether each is then asked to stop."""
    stopped = list[bool]()

    def interrupted(
        costs: PlaceCosts, finals: list[Counts], m: int, stop: Stop, **options: Any
    ) -> TemplateOutcome:
        stopped.append(stop())
        if len(stopped) == 1:
            signal.raise_signal(signal.SIGINT)
        return best_template(costs, finals, m, stop, **options)

    monkeypatch.setattr("solver.templates.generate.best_template", interrupted)
    return stopped
