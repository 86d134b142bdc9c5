"""`explain` and `diff`: what changes of an instance bring, and where two plans differ."""

from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_instance, parse_instance
from formulations.plan import Plan
from solver.comparison import Answer
from solver.evaluate.evaluation import checked
from solver.evaluate.run_plan import judged
from solver.explain.what_ifs import answers, kept, what_ifs
from solver.options import SolveOptions
from solver.report.compared import gain_text
from solver.search.driver import solve
from tests.seeds import few_and_many
from tests.widened import widened

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
    assert best.objective is not None
    return best.objective, told(few_choices(), best.plan, SolveOptions())


def told(instance: Instance, plan: Plan | None, options: SolveOptions) -> list[Answer]:
    """All answers about a plan."""
    assert plan is not None
    return list(answers(instance, plan, options, lambda done, total: None))


def test_every_change_is_solved_as_an_instance_of_its_own(
    explained: tuple[float, list[Answer]],
) -> None:
    """What is saved is what a search of the changed instance says, for each sequence."""
    best, found = explained
    changes = list(what_ifs(few_choices()))
    assert [one.change for one in found] == [one.change for one in changes]
    for answer, one in zip(found, changes, strict=True):
        result = solve(one.instance)
        assert result.objective is not None
        more = few_choices().workload.global_batch / one.instance.workload.global_batch
        assert answer.saves_at_least == pytest.approx(1 - result.objective * more / best)
        assert answer.saves_at_least == answer.saves_at_most


def changes_of(workload: str, groups: str, search: str = "{}", more: str = "") -> list[str]:
    """In words, of an instance written in YAML."""
    text = f"""
name: x
workload: {{{workload}, global_batch: 8}}
cluster:
  groups: {groups}
{more}
search: {search}
"""
    return [one.change for one in what_ifs(parse_instance(text, "x.yaml", Path()))]


def test_every_link_is_doubled_by_itself() -> None:
    """Groups with equal links together; inside nodes of one GPU there is none; between zones."""
    fast = "{name: a, gpu: H100, gpus_per_node: 8, nodes: 1, inter_node: 400 Gbit/s, zone: x}"
    slow = "{name: b, gpu: A10, gpus_per_node: 4, nodes: 2, inter_node: 10 Gbit/s, zone: y}"
    lone = "{name: c, gpu: A10, gpus_per_node: 1, nodes: 2, inter_node: 10 Gbit/s, zone: z}"
    more = """  zone_link: {bandwidth: 1 Gbit/s, latency: 1 ms}
  zone_links: [{zones: [z, x], bandwidth: 2 Gbit/s, latency: 1 ms}]"""
    found = changes_of("catalogue: gpt2", f"[{fast}, {slow}, {lone}]", more=more)
    assert [text for text in found if text.startswith("twice the bandwidth")] == [
        "twice the bandwidth between nodes of a",
        "twice the bandwidth between nodes of b, c",
        "twice the bandwidth inside nodes of a",
        "twice the bandwidth inside nodes of b",
        "twice the bandwidth between zones x and y, y and z",
        "twice the bandwidth between zones x and z",
    ]


def test_every_strategy_is_turned_off() -> None:
    """Those that GPUs share experts and sequences by, too, and unlike degrees."""
    group = "{name: a, gpu: H100, gpus_per_node: 8, nodes: 2, inter_node: 400 Gbit/s}"
    search = "{target: any, degrees: per_group, context_parallel: [1, 2], schedule: [1f1b, gpipe]}"
    found = changes_of("catalogue: mixtral-8x7b", f"[{group}]", search)
    for strategy in ("expert parallelism", "context parallelism", "recomputation", "ZeRO"):
        assert f"no {strategy}" in found
    assert {"1F1B alone", "the same degrees on all GPUs", "no sequence parallelism"} <= set(found)


def test_bug_any_target_was_said_to_have_everything() -> None:
    """Uneven micro-batches go without degrees per group, which are looked at apart."""
    group = "{name: a, gpu: H100, gpus_per_node: 8, nodes: 2, inter_node: 400 Gbit/s}"
    found = changes_of("catalogue: gpt2", f"[{group}]", "{target: megatron}")
    assert "all that FlagScale can launch" in found
    uneven, degrees = (text for text in found if text.endswith("(any target)"))
    assert "uneven micro-batches" in uneven
    assert "degrees" not in uneven
    assert "degrees" in degrees


def test_bug_changes_that_keep_the_plan_had_no_plan_without_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They have it, in its time with the change; of the others nothing is claimed."""
    instance, plan = few_choices(), solve(few_choices()).plan
    assert plan is not None
    monkeypatch.setattr("solver.search.open_list.AT_ONCE", 1)
    monkeypatch.setattr("solver.interrupt.Deadline.over", lambda self: True)
    found = told(instance, plan, SolveOptions(time_limit_s=1.0))
    gains = {gain_text(answer) for answer in found}
    assert gains >= {"0 % at least, not reached in time", "not reached in time"}
    for answer, what_if in zip(found, what_ifs(instance), strict=True):
        start = kept(plan, instance, what_if.instance)
        if start is None:
            assert (answer.saves_at_least, answer.step_time_s) == (None, None)
            assert gain_text(answer) == "not reached in time"
        else:
            assert answer.step_time_s == pytest.approx(start[1] / 1e9)
            assert answer.saves_at_most is None
            assert gain_text(answer).endswith("at least, not reached in time")


@pytest.mark.parametrize("seeds", few_and_many(range(40), 4))
def test_what_a_change_keeps_of_a_plan_is_a_plan_of_it(seeds: range) -> None:
    """`verify` accepts it in the changed instance; more machines and memory keep every plan."""
    for seed in seeds:
        instance = widened(seed)
        plan = solve(instance, SolveOptions(method="minmax")).plan
        for what_if in [] if plan is None else what_ifs(instance):
            assert plan is not None
            start = kept(plan, instance, what_if.instance)
            if start is None:
                assert not what_if.change.startswith("twice")
                continue
            result = judged(what_if.instance, start[0])
            assert result.step_time_ns == start[1]
            assert checked(result)[1:] == ((), ()), (seed, what_if.change)
