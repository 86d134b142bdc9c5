"""`explain` and `diff`: what changes of an instance bring, and where two plans differ."""

import json
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
from tests.command_line import output, run
from tests.seeds import few_and_many
from tests.widened import widened

INSTANCE = Path("instances/hetero_small.yaml")


def few_choices() -> Instance:
    """A plan space of some ten configurations."""
    instance = load_instance(INSTANCE)
    few = {"micro_batch": (4,), "tensor_parallel": (1,), "data_parallel": (2, 4), "zero": (0, 1)}
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
        assert answer.least == pytest.approx(1 - result.objective * more / best)
        assert answer.least == answer.most


def test_wider_changes_never_cost(explained: tuple[float, list[Answer]]) -> None:
    """Machines, links and memory are there to be used or not; fewer of them never help."""
    more = [answer for answer in explained[1] if answer.change.startswith(("one more", "twice"))]
    # A node of each of two groups, the link between nodes, two kinds inside, memory
    assert len(more) == 6
    for answer in explained[1]:
        assert answer.least is not None
        assert (
            answer.least >= 0
            if answer in more
            else answer.change.startswith("half") or (answer.least <= 0)
        )


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
    slow = "{name: b, gpu: A10, gpus_per_node: 4, nodes: 2, inter_node: 10 Gbit/s, zone: x}"
    lone = "{name: c, gpu: A10, gpus_per_node: 1, nodes: 2, inter_node: 10 Gbit/s, zone: y}"
    link = "  zone_link: {bandwidth: 1 Gbit/s, latency: 1 ms}"
    found = changes_of("catalogue: gpt2", f"[{fast}, {slow}, {lone}]", more=link)
    assert [text for text in found if text.startswith("twice the bandwidth")] == [
        "twice the bandwidth between nodes of a",
        "twice the bandwidth between nodes of b, c",
        "twice the bandwidth inside nodes of a",
        "twice the bandwidth inside nodes of b",
        "twice the bandwidth between zones",
    ]
    assert "without c" in found  # which leaves one zone, and no link between zones


def test_terms_are_changed_where_nodes_are_rented_on_spot() -> None:
    """Without a price on demand there is no other choice."""
    group = (
        "{name: a, gpu: A10, gpus_per_node: 1, nodes: 1, spot: {price: 1 USD/h, preemptions: 1 /h}"
    )
    more = "objective: {minimize: cost_per_useful_sequence}"
    terms = ["on demand alone, where it is offered", "half as many preemptions"]
    for price, expected in ((", price: 2 USD/h", terms), ("", terms[1:])):
        found = changes_of("catalogue: gpt2", f"[{group}{price}}}]", more=more)
        assert [text for text in found if text in terms] == expected


def test_links_between_zones_are_doubled_pair_by_pair() -> None:
    """Those of equal figures together."""
    groups = [
        f"{{name: {z}, gpu: A10, gpus_per_node: 1, nodes: 1, inter_node: 1 Gbit/s, zone: {z}}}"
        for z in "xyz"
    ]
    more = """  zone_link: {bandwidth: 1 Gbit/s, latency: 1 ms}
  zone_links: [{zones: [z, x], bandwidth: 2 Gbit/s, latency: 1 ms}]"""
    found = changes_of("catalogue: gpt2", f"[{', '.join(groups)}]", more=more)
    assert [text for text in found if "zones" in text] == [
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
            assert (answer.least, answer.step_time_s) == (None, None)
            assert gain_text(answer) == "not reached in time"
        else:
            assert answer.step_time_s == pytest.approx(start[1] / 1e9)
            assert answer.most is None
            assert gain_text(answer).endswith("at least, not reached in time")


@pytest.mark.parametrize("seeds", few_and_many(range(40), 8))
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


def test_explain_prints_changes(tmp_path: Path) -> None:
    """As text, most saved first, and as data."""
    plan = tmp_path / "plan.json"
    assert run("solve", INSTANCE, "--method", "minmax", "--out", plan)[0] == 0
    text = output("explain", plan, "--time-limit", "0.1")
    assert "limited by" in text
    assert "one more node of 4 A10 (a10)" in text
    text = output("explain", plan, "--time-limit", "0.1", "--json")
    assert {"change", "status", "saves_at_least"} <= set(json.loads(text)[0])


def test_diff_of_a_plan_with_itself_is_none(tmp_path: Path) -> None:
    """Each line says so; another plan's time differs by what its parts differ."""
    plan, other = tmp_path / "a.json", tmp_path / "b.json"
    assert run("solve", INSTANCE, "--method", "minmax", "--out", plan)[0] == 0
    table = run("diff", plan, plan)[1].partition("─\n")[2].splitlines()
    assert table
    assert all(line.endswith("none") for line in table)
    text = (
        INSTANCE.read_text(encoding="utf-8")
        .replace("256", "128")
        .replace("profiles/", f"{INSTANCE.parent.resolve()}/profiles/")
    )
    changed = tmp_path / "half.yaml"
    changed.write_text(text, encoding="utf-8")
    assert run("solve", changed, "--method", "minmax", "--out", other)[0] == 0
    lines = run("diff", plan, other)[1]
    assert "step time" in lines
    assert "a.json" in lines
    assert run("diff", plan, changed)[0] == 2
