"""`explain` and `diff`: what changes of an instance bring, and where two plans differ."""

from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_instance, parse_instance
from formulations.space.launch import able
from solver.evaluate.evaluation import checked
from solver.evaluate.run_plan import judged
from solver.explain.what_ifs import answers, kept, what_ifs
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.report.explained import answer_text, gain_text
from solver.result import Answer, Result
from solver.search.driver import solve
from tests.conftest import present, text_of
from tests.hand_made import document_of
from tests.recorded import Cases, digest, recorded
from tests.seeds import each_of
from tests.small_instances import spot_instance, widened

INSTANCE = Path("instances/hetero_small.yaml")


def few_choices() -> Instance:
    """A plan space of some ten configurations."""
    instance = load_instance(INSTANCE)
    few = {"micro_batch": (4,), "tensor_parallel": (1,), "data_parallel": (4,), "zero": (0, 1)}
    return instance.but(search=few)


@pytest.fixture(scope="module")
def explained() -> tuple[float, list[Answer]]:
    """Objective of the best plan, and all answers, proved."""
    best = solve(few_choices())
    return present(best.objective), told(best, SolveOptions())


def rent_of(result: Result) -> float:
    """Price of the nodes used, in USD per hour."""
    groups = result.instance.cluster.groups
    nodes_used = present(result.plan).config.nodes_used
    return sum(n * g.price_usd_per_hour for n, g in zip(nodes_used, groups, strict=True))


def told(result: Result, options: SolveOptions) -> list[Answer]:
    """All answers about a plan."""
    return list(answers(document_of(result), options, lambda done, total: None))


def test_every_change_is_solved_as_an_instance_of_its_own(
    explained: tuple[float, list[Answer]],
) -> None:
    """What is saved is what a search of the changed instance says, for each sequence."""
    best, told_answers = explained
    changes = list(what_ifs(few_choices()))
    assert [answer.change for answer in told_answers] == [what_if.change for what_if in changes]
    rent = rent_of(present(solve(few_choices())))
    for answer, what_if in list(zip(told_answers, changes, strict=True))[::3]:
        result = solve(what_if.instance)
        document = build_document(result, SolveOptions())
        stages = [stage for replica in document.replicas for stage in replica.stages]
        shares = [stage.memory_bytes / stage.memory_limit_bytes for stage in stages]
        assert answer.fullest_gpu == pytest.approx(max(shares))
        assert answer.launched_by == tuple(able(what_if.instance, present(result.plan)))
        more = rent_of(result) - rent if what_if.priced else None
        assert answer.more_usd_per_hour == pytest.approx(more)
        unpriced = what_if.change.startswith(("twice", "half"))
        assert what_if.priced is not unpriced
        more = few_choices().workload.global_batch / what_if.instance.workload.global_batch
        assert answer.saves_at_least == pytest.approx(1 - present(result.objective) * more / best)
        assert answer.saves_at_least == answer.saves_at_most


@recorded("what_ifs")
def test_changes_are_the_recorded_ones() -> Cases:
    """Every link by itself, groups with equal links together; each strategy turned off; terms.

    Uneven micro-batches of any target go without degrees per group, which are looked at apart.
    """
    for text in text_of("spaces/what_ifs.txt").split("---\n"):
        instance = parse_instance(text, "x.yaml", Path())
        yield instance.name, [what_if.change for what_if in what_ifs(instance)]
    for seed in (4, 8, 9):  # on demand, on spot, or either
        changes = what_ifs(spot_instance(seed))
        yield f"terms {seed}", [f"{c.change} {digest(c.instance.cluster)}" for c in changes]


def test_bug_changes_that_keep_the_plan_had_no_plan_without_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They have it, in its time with the change; of the others nothing is claimed."""
    best = solve(few_choices())
    monkeypatch.setattr("solver.search.open_list.AT_ONCE", 1)
    monkeypatch.setattr("solver.interrupt.Deadline.over", lambda self: True)
    told_answers = told(best, SolveOptions(time_limit_s=1.0))
    assert {gain_text(answer) for answer in told_answers} >= {"0 % at least", "-"}
    assert {answer_text(answer) for answer in told_answers} == {"not reached"}
    for answer, what_if in zip(told_answers, what_ifs(few_choices()), strict=True):
        start = kept(document_of(best), what_if.instance)
        if start is None:
            assert (answer.saves_at_least, answer.step_time_s) == (None, None)
            assert gain_text(answer) == "-"
        else:
            assert answer.step_time_s == pytest.approx(start[1] / 1e9)
            assert answer.saves_at_most is None
            assert gain_text(answer).endswith("at least")


@each_of(range(40), 20)
def test_what_a_change_keeps_of_a_plan_is_a_plan_of_it(seed: int) -> None:
    """`verify` accepts it in the changed instance; more machines and memory keep every plan."""
    instance = widened(seed)
    document = document_of(solve(instance, SolveOptions(method="minmax")))
    for what_if in [] if document.config is None else what_ifs(instance):
        start = kept(document, what_if.instance)
        if start is None:
            assert not what_if.change.startswith("twice")
            continue
        result = judged(what_if.instance, start[0])
        assert result.step_time_ns == start[1]
        assert checked(result)[1:] == ((), ()), (seed, what_if.change)
