"""Step of one pipeline for all numbers of micro-batches: the simulator says the same of each."""

import random
from dataclasses import replace

import numpy as np
import pytest

from formulations.costs.template_costs import TemplateCosts, template_costs
from formulations.fleet import Design, Strategy
from formulations.instance.search import ScheduleName
from formulations.template import Template, stage_on
from solver.fleets.step_times import kinds_of, step_times_ns
from solver.simulate import pipeline_step_ns
from tests.random_fleets import random_template
from tests.small_instances import random_instance


def random_costs(rng: random.Random, schedule: ScheduleName = "1f1b") -> TemplateCosts:
    """Costs of up to six stages with room for anything."""
    p = rng.randint(1, 6)

    def draw(count: int, most: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([rng.randint(0, most) for _ in range(count)], dtype=np.int64)

    return TemplateCosts(
        schedule=schedule,
        blocking_sends=rng.random() < 0.3,
        tied=rng.random() < 0.5,
        forward_ns=draw(p, 50),
        backward_ns=draw(p, 50),
        send_ns=draw(p - 1, 30),
        send_back_ns=draw(p - 1, 30),
        optimizer_ns=draw(p, 20),
        embedding_ns=rng.randint(0, 40),
        memory_bytes=np.zeros(p, dtype=np.int64),
        activation_bytes=np.ones(p, dtype=np.int64),
        limit_bytes=np.full(p, 1000),
    )


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_every_number_equals_the_simulator(schedule: ScheduleName) -> None:
    """1 to 20 micro-batches on a hundred random pipelines."""
    rng = random.Random(3)
    for _ in range(100 if schedule == "1f1b" else 10):
        costs = random_costs(rng, schedule)
        assert step_times_ns(costs, 20) == [pipeline_step_ns(costs, m) for m in range(1, 21)]


def test_many_micro_batches_equal_the_simulator() -> None:
    """Long after rounds have begun to repeat, with periods of one and of several."""
    rng = random.Random(5)
    for _ in range(40):
        costs = random_costs(rng)
        found = step_times_ns(costs, 300)
        for m in (37, 150, 299, 300):
            assert found[m - 1] == pipeline_step_ns(costs, m)


def test_times_end_where_memory_does() -> None:
    """GPipe holds all micro-batches: of 20 with one byte each 5 fit into 5 bytes."""
    costs = replace(random_costs(random.Random(1), "gpipe"))
    costs = replace(costs, limit_bytes=np.full(costs.num_stages, 5))
    assert len(step_times_ns(costs, 20)) == 5
    assert step_times_ns(replace(costs, limit_bytes=0 * costs.limit_bytes), 20) == []


def test_costs_of_a_template_are_those_of_its_layers() -> None:
    """Stage times are sums over layers of the tables for the stage's degree and group."""
    strategy = Strategy(micro_batch=1, recompute=("none",), schedule="1f1b")
    for seed in range(20):
        instance = random_instance(seed)
        rng = random.Random(seed)
        num_layers = len(instance.workload.layers)
        groups = instance.cluster.node_groups[: min(3, num_layers)]
        gpus = [group.gpus_per_node for group in instance.cluster.groups]
        template = random_template(rng, num_layers, groups, gpus)
        costs = template_costs(instance, strategy, template)
        whole = Template(
            node_groups=groups[:1],
            stages=(stage_on(layers=(0, num_layers), node=0, first_gpu=0, gpus=1),),
        )
        if len(set(groups)) == 1:
            total = template_costs(instance, strategy, whole).forward_ns.sum()
            assert costs.forward_ns.sum() == total
        assert len(costs.send_ns) == template.num_stages - 1
        (kind,) = kinds_of(instance, [Design(template=template, strategy=strategy)])
        assert kind.nodes == template.counts(len(gpus))
        assert list(kind.times_ns) == step_times_ns(costs, instance.workload.global_batch)
