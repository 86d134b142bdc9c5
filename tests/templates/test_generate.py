"""Templates of whole instances: against all templates, judged stage by stage without tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.node_sharing import NodeSplit
from formulations.units import seconds
from solver.fleets.designs import TemplatesDocument, templates_document
from solver.graph.pipelines import Counts
from solver.interrupt import Stop
from solver.result import Status
from solver.study.store import StudyError, open_study
from solver.templates import generate
from tests.conftest import Killed, present, stored_instance
from tests.random_configs import zoned
from tests.seeds import one_each
from tests.small_instances import random_instance
from tests.template_cases import (
    fleet_instance,
    interrupted_once,
    values_of_all,
    with_long_optimizers,
)
from tests.verify.forgeries import reshelve

ONE = generate.TemplateOptions(micro_batch=1)


def every_size(generator: generate.TemplateGenerator) -> range:
    return range(1, sum(generator.mixes.available) + 1)


def entries(
    instance: Instance, report: Callable[[int, int], None] = lambda done, total: None
) -> list[generate.TemplateEntry]:
    """The best template of every mix, in micro-batches of 1."""
    generator = generate.TemplateGenerator(instance, ONE, report)
    return generator.by_mix(every_size(generator))


def check_all_mixes(instance: Instance, seed: int) -> None:
    """Every mix against every template of it; mixes that cannot hold the model are infeasible.

    n0 are the fewest nodes of which every mix has a template.
    """
    split = NodeSplit.ANY if seed % 2 else NodeSplit.ALIGNED
    options = generate.TemplateOptions(split=split, micro_batch=1)
    generator = generate.TemplateGenerator(instance, options)
    every, groups = every_size(generator), len(generator.mixes.available)
    values: dict[Counts, list[int]] = {mix: [] for n in every for mix in generator.mixes.of(n)}
    for nodes in every:
        m = generator.micro_batches(nodes)
        for template, value in values_of_all(instance, options, nodes, m, 1):
            values[template.counts(groups)].append(value)
    for own, entry in zip(values.values(), generator.by_mix(every), strict=True):
        assert entry.step_time_s == (seconds(min(own)) if own else None)
        assert entry.status is (Status.OPTIMAL if own else Status.INFEASIBLE)
        assert entry.gap == (0 if own else None)
    least = next((n for n in every if all(values[mix] for mix in generator.mixes.of(n))), None)
    assert generator.least_nodes == least


@pytest.mark.parametrize("seed", one_each(range(60), 30))
def test_best_of_all_templates_and_strategies(seed: int) -> None:
    check_all_mixes(random_instance(seed), seed)


@pytest.mark.usefixtures("round_times")
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("seed", one_each(range(33, 93), 60))
def test_best_of_all_templates_with_long_optimizers(seed: int, blocking: bool) -> None:
    """The optimizer of the first stage comes once a step, however many stages there may be."""
    check_all_mixes(with_long_optimizers(seed, blocking), seed)


# Instances of two node groups, with tied embeddings.
@pytest.mark.parametrize("seed", one_each((9, 4, 10, 13, 14, 16, 20, 25, 26, 32, 35, 37), 12))
def test_best_of_all_templates_across_zones(seed: int) -> None:
    """Tied embeddings cross between the zones in templates of both, and in no other."""
    instance = random_instance(seed)
    assert len(instance.cluster.groups) == 2
    assert any(one.tied_copy for one in instance.workload.layers)
    check_all_mixes(zoned(instance, seed), seed)


def test_bug_templates_of_any_split_keep_to_the_degrees_listed() -> None:
    """Stages of one GPU on nodes of two, though one of both would be faster."""
    instance = with_long_optimizers(7, False).but(search={"tensor_parallel": (1,)})
    options = generate.TemplateOptions(split=NodeSplit.ANY, micro_batch=1)
    for result in generate.TemplateGenerator(instance, options).by_mix((1, 2)):
        assert {stage.degrees.tp for stage in present(result.template).stages} == {1}


@pytest.mark.parametrize("blocking", [False, True])
def test_bug_tail_of_the_first_stage_counted_in_every_round(blocking: bool) -> None:
    """Two stages of two GPUs are the best of all, also where stages of one GPU are allowed."""
    # Two nodes of two GPUs; the optimizer of an embedding of 20,000 rows takes most of a step
    instance = stored_instance("long_optimizer")
    steps_s = []
    for degrees in ((2,), (1, 2)):
        search = {"tensor_parallel": degrees, "blocking_sends": blocking}
        [result] = generate.TemplateGenerator(instance.but(search=search), ONE).by_mix([2])
        assert result.status is Status.OPTIMAL
        steps_s.append(result.step_time_s)
    assert steps_s[0] == steps_s[1]


def test_mixes_of_a_large_cluster_take_no_product_of_all_groups() -> None:
    """2 nodes of three groups of 100,000: 2 of one, or 1 of two: 3 + 3 ways."""
    instance = random_instance(0)
    group = instance.cluster.groups[0].but(nodes=10**5)
    groups = tuple(group.but(name=name) for name in "abc")
    generator = generate.TemplateGenerator(instance.but(cluster={"groups": groups}), ONE)
    assert sorted(generator.mixes.of(2)) == sorted(
        [(2, 0, 0), (0, 2, 0), (0, 0, 2), (1, 1, 0), (1, 0, 1), (0, 1, 1)]
    )


def test_micro_batches_are_the_nodes_share_of_a_step_rounded_up() -> None:
    """Batch 6 on 3 nodes in micro-batches of 1: 2 per node; of 3: 2 for 2 nodes."""
    instance = next(
        one
        for one in map(random_instance, range(99))
        if one.workload.global_batch == 6 and sum(g.nodes for g in one.cluster.groups) == 3
    )
    generator = generate.TemplateGenerator(instance.but(search={"micro_batch": (1, 3)}), ONE)
    assert [generator.micro_batches(n) for n in (1, 2, 3)] == [2, 4, 6]
    assert generator.again(micro_batch=3).micro_batches(2) == 2
    assert generator.again(micro_batches=5).micro_batches(3) == 5


def test_after_an_interrupt_the_rest_is_what_the_starts_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C in the first search: templates all the same, none above its bound, all reported."""
    best = entries(random_instance(7))
    told = list[tuple[int, int]]()
    interrupted_once(monkeypatch)
    cut = entries(random_instance(7), lambda *done: told.append(done))
    assert told == [(i, len(cut)) for i in range(len(cut))]
    for entry, known in zip(cut, best, strict=True):
        assert known.step_time_s is not None
        assert present(entry.bound_s) <= known.step_time_s
        assert entry.step_time_s is None or entry.step_time_s >= known.step_time_s


@pytest.mark.parametrize(
    ("listed", "words"),
    [(None, "does not divide"), ((1, 5), "does not divide"), ((1, 2), "not in search.micro_batch")],
)
def test_micro_batch_that_divides_no_step_is_refused(
    listed: tuple[int, ...] | None, words: str
) -> None:
    """5 sequences of a batch of 2, 4 or 6; or a number that the instance does not list."""
    instance = random_instance(0).but(search={"micro_batch": listed})
    with pytest.raises(PlannerError, match=f"--micro-batch 5: {words}"):
        generate.TemplateGenerator(instance, generate.TemplateOptions(micro_batch=5))


# Kept in a study: those that were found stay found


FOUR = fleet_instance(4)


def templates(path: Path | None, options: generate.TemplateOptions = ONE) -> TemplatesDocument:
    """The templates that survive no failure, with a study or without one."""
    if path is None:
        return templates_document(generate.TemplateGenerator(FOUR, options), 0)
    with open_study(path, FOUR) as study:
        return templates_document(generate.TemplateGenerator(FOUR, options, study=study), 0)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Counts]:
    """A list to which a mix is added for every search; the second one is killed."""
    mixes, original = list[Counts](), generate.best_of_strategies

    def counted(costs: Any, mix: Counts, m: int, gap: float, stop: Stop) -> generate.Found:
        mixes.append(mix)
        if len(mixes) == 2:
            raise Killed
        return original(costs, mix, m, gap, stop)

    monkeypatch.setattr("solver.templates.generate.best_of_strategies", counted)
    return mixes


def test_killed_search_goes_on(tmp_path: Path, searches: list[Counts]) -> None:
    """It loses the mix in hand, shows what is open, and ends with what a fresh run finds.

    What was found says nothing of another number of micro-batches.
    """
    path = tmp_path / "study.db"
    with pytest.raises(Killed):
        templates(path)
    with open_study(path, None) as study:
        state = present(generate.open_mixes(study))
    assert state[0] == 1
    assert len(state[1]) > 0
    resumed = templates(path)
    assert len(searches) == state[0] + 1 + len(state[1])
    assert resumed == templates(path) == templates(None)
    others = generate.TemplateOptions(micro_batch=1, micro_batches=5)
    assert templates(path, others) == templates(None, others)


def test_template_that_was_changed(tmp_path: Path) -> None:
    """It is simulated before it is believed."""
    path = tmp_path / "study.db"
    templates(path)
    reshelve(path, "template", lambda fields: fields.replace('"value":', '"value":1'))
    with pytest.raises(StudyError, match=r"a template of 1\d+ ns takes"):
        templates(path)
