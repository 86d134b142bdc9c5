"""The micro-batch size of a fleet: small enough for every pipeline to have one."""

import signal
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.space import micro_batches
from solver.fleets.designs import generator_for
from solver.fleets.fleet import start_fleet
from solver.fleets.template_document import templates_document
from solver.layered.gpu_graph import Counts
from solver.layered.places import PlaceCosts
from solver.templates.generate import NoTemplateError, TemplateOptions
from solver.templates.step_time import Stop, TemplateOutcome, best_template
from tests.random_fleets import enlarged


def throughput(instance: Instance, options: TemplateOptions) -> float:
    """Of the fleet that survives one fault."""
    document = templates_document(generator_for(instance, options, 1), 1)
    return start_fleet(instance, document.designs, 1).throughput_sequences_per_s


@pytest.mark.parametrize("seed", [4, 10, 29])
def test_bug_every_pipeline_gets_a_micro_batch(seed: int) -> None:
    """A step of two sequences in one micro-batch is fastest for a pipeline, and refused for two."""
    instance = enlarged(seed)
    assert instance.workload.global_batch == 2
    assert micro_batches(instance) == [1, 2]
    assert generator_for(instance, TemplateOptions(), 1).micro_batch == 1
    assert throughput(instance, TemplateOptions()) > 0


@pytest.mark.parametrize("seed", [9, 13, 33, 36])
def test_the_size_with_more_throughput_is_chosen(seed: int) -> None:
    """Sizes of which one trains more than the other: that one."""
    instance = enlarged(seed)
    sizes = [TemplateOptions(micro_batch=b) for b in micro_batches(instance)]
    found = [throughput(instance, one) for one in sizes]
    assert len(set(found)) == len(found) > 1
    assert throughput(instance, TemplateOptions()) == max(found)


def test_the_size_asked_for_is_taken() -> None:
    """Also where another one trains more."""
    assert generator_for(enlarged(9), TemplateOptions(micro_batch=2), 1).micro_batch == 2


def test_no_size_fits() -> None:
    """Not one template of instance 26 fits into memory."""
    with pytest.raises(NoTemplateError, match="no template fits into the memory"):
        generator_for(enlarged(26), TemplateOptions(), 1)


def test_bug_an_interrupt_ends_all_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the first size is looked at: nothing after it is given any time."""
    stopped = list[bool]()

    def interrupted_once(
        costs: PlaceCosts, finals: list[Counts], m: int, stop: Stop, **options: Any
    ) -> TemplateOutcome:
        stopped.append(stop())
        if len(stopped) == 1:
            signal.raise_signal(signal.SIGINT)
        return best_template(costs, finals, m, stop, **options)

    monkeypatch.setattr("solver.templates.generate.best_template", interrupted_once)
    generator = generator_for(enlarged(9), TemplateOptions(), 1)
    generator.by_mix([1])
    assert generator.interrupted
    assert len(stopped) > 1
    assert all(stopped[1:])
