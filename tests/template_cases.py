"""Templates, fleets of them and places of tiny instances, drawn or by plain enumeration."""

import random
import signal
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations, pairwise, product
from typing import Any

import pytest

from formulations.costs.template_costs import template_costs
from formulations.fleet import Design, Pipeline, Strategy, Template, stage_on
from formulations.instance import Cluster, Instance, Limits, Link
from formulations.node_sharing import NodeSplit
from formulations.plan import Recomputed
from formulations.space.configurations import pipeline_strategies
from solver.fleet_document import FleetDocument
from solver.fleets.fleet import next_fleet, start_fleet
from solver.fleets.recovery import Horizon
from solver.graph.pipelines import Counts
from solver.graph.places import PlaceCosts, Places, place_costs
from solver.interrupt import Stop
from solver.simulate import pipeline_step_ns
from solver.templates.generate import TemplateOptions
from solver.templates.step_time import TemplateOutcome, best_template
from tests.small_instances import gpu, instance_of, layer, nodes_of, random_instance, workload

LAYERS = 6
HOUR = Horizon(3600 * 10**9)
STRATEGY = Strategy(micro_batch=1, recompute=("none",), schedule="1f1b")


def cluster(nodes: int, others: int = 0) -> Cluster:
    """`nodes` nodes with links of 1 GB/s, and others with 0.5 GB/s; two GPUs each."""
    groups = [
        nodes_of(
            gpu(name, 100, 10),
            gpus_per_node=2,
            nodes=count,
            intra_node=Link(bandwidth_bytes_per_s=1e11, latency_s=0),
            inter_node=Link(bandwidth_bytes_per_s=speed, latency_s=0),
        )
        for name, count, speed in (("a", nodes, 1e9), ("b", others, 5e8))
        if count
    ]
    return Cluster(groups=tuple(groups))


def fleet_instance(nodes: int, others: int = 0) -> Instance:
    """Six layers, 12 sequences a step, room for all layers on one GPU."""
    chain = [layer("embedding", 5, 10**7, 10**6)]
    chain += [layer("block", 20_000, 10**8, 10**7) for _ in range(LAYERS - 2)]
    chain += [layer("head", 10, 10**7, 10**6)]
    work, limits = workload(chain, 12, 10**5, tied=False), Limits(framework_reserve_bytes=0)
    return instance_of("fleet", work, cluster(nodes, others).groups, limits=limits)


def enlarged(seed: int) -> Instance:
    """A random instance with four nodes, two of each group where there are two."""
    instance = random_instance(seed)
    counts = (4,) if len(instance.cluster.groups) == 1 else (2, 2)
    return instance.with_nodes(counts)


def template_of(
    node_groups: tuple[int, ...], places: Iterable[tuple[int, int]], cuts: Iterable[int]
) -> Template:
    """Stages of one GPU, at a node and GPU each; cuts: first layers of stages, and the end."""
    stages = (
        stage_on(layers=layers, node=node, first_gpu=gpu, gpus=1)
        for layers, (node, gpu) in zip(pairwise(cuts), places, strict=True)
    )
    return Template(node_groups=node_groups, stages=tuple(stages))


def even_designs(sizes: range) -> list[Design]:
    """One stage of one GPU per node, blocks spread as evenly as can be."""
    designs = []
    for size in sizes:
        cuts = [0, *((LAYERS - 2) * k // size + 1 for k in range(1, size)), LAYERS]
        template = template_of((0,) * size, [(node, 0) for node in range(size)], cuts)
        designs.append(Design(template=template, strategy=STRATEGY))
    return designs


@cache
def seven_nodes() -> FleetDocument:
    """A fleet on seven nodes, of templates of two and three, that survives one fault."""
    return start_fleet(fleet_instance(7), even_designs(range(2, 4)), 1)


@cache
def after_a_loss() -> FleetDocument:
    """The fleet that follows for an hour, as a node of its first pipeline is lost."""
    return next_fleet(seven_nodes(), [seven_nodes().pipelines[0].nodes[0]], [], HOUR)


def random_template(
    rng: random.Random, num_layers: int, node_groups: tuple[int, ...], gpus: list[int]
) -> Template:
    """One to `gpus[j]` stages of one GPU on every node; gpus: per node group."""
    places = [
        (node, gpu)
        for node, group in enumerate(node_groups)
        for gpu in range(rng.randint(1, min(gpus[group], num_layers - len(node_groups) + 1)))
    ]
    while len(places) > num_layers:
        counts = [node for node, _ in places]
        places.remove(next(place for place in places if counts.count(place[0]) > 1))
    cuts = [0, *sorted(rng.sample(range(1, num_layers), len(places) - 1)), num_layers]
    return template_of(node_groups, places, cuts)


def fleet_of(templates: list[Template]) -> list[Pipeline]:
    fleet, first_node = [], 0
    for template in templates:
        nodes = tuple(range(first_node, first_node + template.num_nodes))
        fleet.append(Pipeline(template, nodes, 1))
        first_node += template.num_nodes
    return fleet


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
