"""What a document says of templates."""

import random
from collections.abc import Sequence

import pytest

from formulations.errors import NoPlanError
from formulations.instance import Instance
from formulations.node_sharing import NodeSplit
from formulations.space.configurations import micro_batches, pipeline_strategies
from solver.fleet_document import FleetDocument
from solver.fleets import designs
from solver.fleets.designs import (
    designs_of,
    fleet_sizes,
    fleet_templates,
    generator_for,
    templates_document,
)
from solver.fleets.fleet import next_fleet, start_fleet
from solver.graph.places import place_costs
from solver.interrupt import TimeUp
from solver.templates.generate import TemplateGenerator, TemplateOptions
from solver.verify import verify_fleet
from tests.recorded import Cases, recorded
from tests.seeds import one_each
from tests.template_cases import (
    HOUR,
    all_templates,
    enlarged,
    holds_blocks,
    interrupted_once,
    recomputing,
)


def test_what_the_document_says_of_sizes() -> None:
    """n0 = 1 on 4 nodes and one fault: size 1 covers all; a failure of 3 or 4 takes one apart.

    Its claims are those of its designs, one for each template.
    """
    generator = TemplateGenerator(enlarged(116), TemplateOptions(micro_batch=1))
    document = templates_document(generator, 1)
    assert (document.least_nodes, document.sizes, document.available) == (1, (1,), 4)
    assert document.pipelines == ("2: 2 pipelines", "3: 3 pipelines", "4: 4 pipelines")
    assert (document.fewest_sizes, document.fewest_proved) == ((1,), True)
    assert (document.rebuilt_nodes, document.rebuilt, document.rebuilt_by_fewest) == ((3, 4), 1, 1)
    assert [claim.design for claim in document.claims.bounds] == [*range(len(document.designs))]
    for claim, design in zip(document.claims.bounds, document.designs, strict=True):
        entry = next(one for one in document.templates[::-1] if one.template == design.template)
        assert claim.micro_batches == entry.micro_batches
        assert (claim.step_time_s, claim.bound_s) == (entry.step_time_s, entry.bound_s)


ONE = TemplateOptions(micro_batch=1)


def holds_a_step(instance: Instance, nodes: Sequence[str]) -> bool:
    """Whether any template on some of the nodes has room for all micro-batches of 1, one by one."""
    groups = [name.rpartition("-")[0] for name in nodes]
    ready = instance.with_nodes([groups.count(g.name) for g in instance.cluster.groups])
    return any(
        recomputing(ready, strategy, template, ready.workload.global_batch) is not None
        for strategy in pipeline_strategies(ready, 1)
        for number in range(1, len(nodes) + 1)
        for template in all_templates(
            place_costs(ready, strategy, NodeSplit.ALIGNED).several, number
        )
        if holds_blocks(ready, template)
    )


def first_fleet(instance: Instance) -> FleetDocument | None:
    """One fault, micro-batches of 1; None where the cluster has no room for that."""
    try:
        document = templates_document(TemplateGenerator(instance, ONE), 1)
        return start_fleet(instance, document.designs, 1)
    except NoPlanError:
        return None


# 6: one node of the larger type holds the model, two of any do. 9, 15, 116: the share of a step
# leaves room that all of it does not.
@pytest.mark.parametrize("seed", [6, 9, 15, 116, *one_each(range(60), 60)])
def test_bug_there_is_a_fleet_until_no_template_holds_a_step(seed: int) -> None:
    """Nodes are lost one by one; once there is no fleet, no template of all fits what is left."""
    instance = enlarged(seed)
    fleet = first_fleet(instance)
    names = list(instance.cluster.node_names)
    random.Random(seed).shuffle(names)
    while fleet is not None and len(names) > 1:
        lost = names.pop()
        try:
            fleet = next_fleet(fleet, [lost], [], HOUR)
        except NoPlanError:
            assert not holds_a_step(instance, names)
            break
        assert verify_fleet(fleet).problems == ()
        assert verify_fleet(next_fleet(fleet, [], [lost], HOUR)).problems == ()


def test_bug_pipelines_of_fewer_nodes_than_n0() -> None:
    """Of instance 16 any three of four nodes hold the model, and some pairs: two pipelines fit."""
    generator = TemplateGenerator(enlarged(16), ONE)
    document = templates_document(generator, 1)
    assert (document.least_nodes, document.available) == (3, 4)
    assert len(start_fleet(generator.instance, document.designs, 1).pipelines) == 2
    with pytest.raises(NoPlanError, match=r"2 pipelines at once, not for 3; .* up to 1 faults"):
        templates_document(generator, 2)


def throughput(instance: Instance, size: int | None) -> float:
    document = templates_document(generator_for(instance, TemplateOptions(micro_batch=size), 1), 1)
    return start_fleet(instance, document.designs, 1).throughput_sequences_per_s


@pytest.mark.parametrize("seed", [4, 10, *one_each((33, 9, 13, 36), 4)])
def test_bug_every_pipeline_gets_a_micro_batch(seed: int) -> None:
    """A step of two sequences in one micro-batch is fastest for a pipeline, and refused for two.

    Of 4 and 10, whose batch has two; of others the size with most throughput is taken.
    """
    instance = enlarged(seed)
    sizes = [1] if instance.workload.global_batch == 2 else micro_batches(instance)
    by_size = [throughput(instance, size) for size in sizes]
    assert len(set(by_size)) == len(by_size)
    assert throughput(instance, None) == max(by_size) > 0


def test_bug_an_interrupt_ends_all_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the first size is looked at: nothing after it is given any time."""
    with pytest.raises(NoPlanError, match="no template fits into the memory"):
        generator_for(enlarged(26), TemplateOptions(), 1)
    stopped = interrupted_once(monkeypatch)
    generator = generator_for(enlarged(9), TemplateOptions(), 1)
    generator.by_mix([1])
    assert generator.clock.interrupted
    assert len(stopped) > 1
    assert all(stopped[1:])


@pytest.mark.parametrize("error", [TimeUp, KeyboardInterrupt])
def test_bug_templates_are_told_without_fleets_when_the_time_is_up(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fleets of 15 sizes were listed for a minute after a limit of 20 s."""

    def listing(*_: object) -> None:
        raise error

    monkeypatch.setattr(designs, "fleet_choices", listing)
    document = templates_document(TemplateGenerator(enlarged(116), ONE), 1)
    assert document.designs
    assert document.choices is None


@recorded("designs")
def test_sizes_and_templates_are_the_recorded_ones() -> Cases:
    for seed in (4, 10, 116):
        generator = generator_for(enlarged(seed), TemplateOptions(), 1)
        sizes = fleet_sizes(generator, 1)
        entries = fleet_templates(generator, sizes)
        found = [[e.nodes, e.micro_batches, e.step_time_s, e.template is None] for e in entries]
        designs = [design.template.num_nodes for design in designs_of(entries)]
        yield str(seed), [generator.micro_batch, [*sizes], designs, *found]
