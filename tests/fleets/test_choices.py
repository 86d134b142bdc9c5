"""Sets of template sizes, instantiations and shares, against every fleet one by one."""

from collections.abc import Sequence
from itertools import permutations, product

import pytest

from formulations.errors import NoPlanError
from formulations.pipelines import InstantiationProblem, PipelineKind
from formulations.units import seconds
from solver.fleets.choices import MOST_OPTIONS, _set_of
from solver.fleets.designs import TemplatesDocument, fleet_sizes, sizes_of, templates_document
from solver.fleets.instantiate import choice, suffices
from solver.fleets.step_times import kinds_of
from solver.templates.generate import TemplateGenerator, TemplateOptions
from tests.conftest import present
from tests.refusals import refusal, refusals
from tests.seeds import each_of
from tests.template_cases import enlarged


def documents(seed: int, faults: int) -> tuple[TemplateGenerator, TemplatesDocument] | None:
    generator = TemplateGenerator(enlarged(seed), TemplateOptions(micro_batch=1))
    try:
        document = templates_document(generator, faults)
    except NoPlanError:
        return None
    return (generator, document) if document.choices else None


def steps_of(kinds: Sequence[PipelineKind], problem: InstantiationProblem) -> list[int]:
    """Steps of every fleet of these kinds, ascending."""
    most = [problem.most(problem.kinds.index(kind)) for kind in kinds]
    fleets = product(*(range(n + 1) for n in most))
    chosen = InstantiationProblem(
        tuple(kinds), problem.available, problem.faults, problem.micro_batches, all_nodes=False
    )
    return sorted(
        choice(chosen, counts).step_ns
        for counts in fleets
        if suffices(chosen, counts)
        and all(
            sum(kind.nodes[j] * n for kind, n in zip(kinds, counts, strict=True)) <= nodes
            for j, nodes in enumerate(problem.available)
        )
    )


@each_of(range(100, 140), 12)
def test_every_set_has_its_best_fleet_now_and_after_failures(seed: int) -> None:
    """All of its fleets one by one, on all nodes and whichever node fails; larger sets are as fast.

    With fewer pipelines than asked for only where so many do not fit.
    """
    made = documents(seed, 1)
    if made is None:
        return
    (generator, document), instance = made, made[0].instance
    choices, batch = present(document.choices), instance.workload.global_batch
    kinds = kinds_of(instance, document.designs)
    available, names = generator.mixes.available, instance.cluster.node_groups

    def best(sizes: Sequence[int], nodes: tuple[int, ...], faults: int = 1) -> float | None:
        problem = InstantiationProblem(kinds, nodes, faults, batch, all_nodes=False)
        some = [k for k in kinds if sum(k.nodes) in sizes or sum(k.nodes) < min(sizes)]
        steps = steps_of(some, problem) if some else []
        if not steps and faults:
            return best(sizes, nodes, faults - 1)
        return batch / seconds(steps[0]) if steps else None

    rates = list[tuple[float, float]]()
    for members in choices.sets:
        assert members.sequences_per_s == pytest.approx(best(members.sizes, available))
        failed = {names[node] for node in range(len(names))}
        after = [
            best(members.sizes, tuple(n - (j == lost) for j, n in enumerate(available)))
            for lost in failed
        ]
        worst = None if None in after else min(filter(None, after))
        assert members.after_faults_sequences_per_s == pytest.approx(worst)
        rates.append((members.sequences_per_s or 0.0, worst or 0.0))
    pairs = zip(choices.sets, rates, strict=True)
    for (fewer, a), (more, b) in permutations(pairs, 2):
        if {*fewer.sizes} <= {*more.sizes}:
            assert a[0] <= b[0] * (1 + 1e-12)
            assert a[1] <= b[1] * (1 + 1e-12)
    problem = InstantiationProblem(kinds, available, 1, batch, all_nodes=False)
    steps = steps_of(kinds, problem)
    listed = [option.step_time_s for option in choices.options]
    assert listed == [seconds(step) for step in steps[:MOST_OPTIONS] if step <= 1.25 * steps[0]]
    # By the slowest pipeline nothing is faster; by variance nothing varies less
    by_step, by_variance = choices.shares
    assert by_step.slowest_s <= by_variance.slowest_s
    assert by_variance.deviation_s <= by_step.deviation_s * (1 + 1e-9)


@refusals("fleet_sizes")
def test_sizes_that_leave_numbers_of_nodes_out_are_refused(text: str, message: str) -> None:
    """n0 = 1 on 4 nodes, with one fault to survive."""
    generator = TemplateGenerator(enlarged(116), TemplateOptions(micro_batch=1))
    assert refusal(lambda: fleet_sizes(generator, 1, sizes_of(text))).startswith(message)


def test_sizes_asked_for_are_those_of_the_templates() -> None:
    generator = TemplateGenerator(enlarged(116), TemplateOptions(micro_batch=1))
    for text, sizes in (("fewest", (1,)), ("1,3", (1, 3)), ("2,1", (1, 2))):
        document = templates_document(generator, 1, sizes_of(text))
        assert document.sizes == sizes
        assert {entry.nodes for entry in document.templates} >= {*sizes}
        assert [row.name for row in present(document.choices).sets] == ["these"]


def test_templates_that_make_no_fleet_are_told_all_the_same() -> None:
    """One micro-batch a step is none for a second pipeline."""
    instance = enlarged(116)
    single = instance.but(workload={"global_batch": 1})
    document = templates_document(TemplateGenerator(single, TemplateOptions(micro_batch=1)), 1)
    assert document.designs
    assert document.choices is None


def test_bug_failures_of_many_groups_were_sought_among_all_subsets() -> None:
    """One node of 60 groups fails: 60 ways, not 2^60, and no template to go on with."""
    problem = InstantiationProblem((), (1,) * 60, faults=1, micro_batches=1)
    assert _set_of(problem, 1, (1,), "none").after_faults_sequences_per_s is None
