"""Switch plans: against every assignment of sources, the published rule, and their bound; files."""

import json
import random
from dataclasses import astuple
from itertools import pairwise, product
from math import prod
from pathlib import Path

import pytest

from formulations.errors import PlanError
from formulations.switching.shards import layout_of
from formulations.switching.switch import Demand, Sending, Switch, port_bound, switch_of
from solver.document import PlanDocument
from solver.interrupt import TimeUp
from solver.lengths.candidates import switch_times
from solver.lengths_document import SwitchDocument
from solver.switching import quickest
from solver.switching.quickest import check_alike, plan_switch
from tests.command_line import output, refused, run
from tests.conftest import ROOT
from tests.hand_made import results
from tests.recorded import Cases, digest, recorded
from tests.seeds import few_and_many
from tests.switch_cases import example, tiny_switch
from tests.verify.forgeries import forged as forged_plan

#: Assignments that brute force tries.
MOST = 20_000


def ways(demand: Demand) -> list[Sending]:
    """Each owner, directly or by way of each GPU."""
    vias = [None, *(demand.receivers if len(demand.receivers) > 1 else ())]
    return [
        Sending(demand.number, 0, demand.size_bytes, owner, via, demand.receivers)
        for owner, via in product(demand.owners, vias)
    ]


def check_complete(switch: Switch, sendings: tuple[Sending, ...]) -> None:
    """Every needer gets every byte of its classes once, from owners."""
    for number, own in enumerate(switch.classes):
        mine = [one for one in sendings if one.number == number]
        assert all(one.source in own.owners for one in mine)
        for gpu in own.needers:
            ranges = sorted((one.begin, one.end) for one in mine if gpu in one.receivers)
            assert (ranges[0][0], ranges[-1][1]) == (0, own.size_bytes)
            assert all(one[1] == two[0] for one, two in pairwise(ranges))


@pytest.mark.parametrize("seeds", few_and_many(range(60), 12))
def test_no_assignment_of_sources_is_quicker(seeds: range) -> None:
    """By more than 6 %; nor is any below the bound, or the plan above the published rule.

    Nor are random owners, by way of random GPUs, below the bound.
    """
    tried = 0
    for seed in seeds:
        switch, rng = tiny_switch(seed), random.Random(seed)
        planned, choices = plan_switch(switch), [ways(demand) for demand in switch.demands]
        check_complete(switch, planned.sendings)
        assert planned.bound.time_ns <= planned.time_ns <= planned.published_ns
        for _ in range(5):
            drawn = [rng.choice(choice) for choice in choices]
            assert port_bound(switch).time_ns <= switch.time_ns(drawn)
        if prod(map(len, choices)) <= MOST:
            tried += 1
            best = min(switch.time_ns(plan) for plan in product(*choices))
            assert planned.bound.time_ns <= best
            assert planned.time_ns <= 1.06 * best
    assert tried > len(seeds) // 2


@recorded("switching")
def test_plans_are_the_recorded_ones() -> Cases:
    for seed in range(80):
        plan = plan_switch(tiny_switch(seed))
        sendings = digest(list(map(astuple, plan.sendings)))
        yield f"plan {seed}", [plan.time_ns, plan.published_ns, len(plan.sendings), sendings]


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeUp])
def test_bug_ctrl_c_lost_the_plan_known(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It, and a time limit, leave the published plan; times of all pairs are of best plans only."""

    def ended(switch: Switch, enough_ns: float) -> list[Sending]:
        raise error

    known = [(one.instance, one.plan) for one in results([1]) if one.plan is not None][:3]
    instance, plans, switch = known[0][0], [plan for _, plan in known], tiny_switch(0)
    first, last = (layout_of(instance.cluster, plan) for plan in plans[:2])
    pair = switch_of(instance.cluster, instance.workload, first, last, ["gradients"])
    times = switch_times(instance.cluster, instance.workload, plans).gradients_ns
    assert (times[0][0], times[0][1]) == (0, plan_switch(pair).time_ns)
    monkeypatch.setattr(quickest, "balanced_plan", ended)
    planned = plan_switch(switch)
    check_complete(switch, planned.sendings)
    assert planned.bound.time_ns <= planned.time_ns == planned.published_ns
    assert planned.interrupted is (error is KeyboardInterrupt)
    if planned.interrupted:
        with pytest.raises(KeyboardInterrupt):
            switch_times(instance.cluster, instance.workload, plans)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two plan files of FASOP's small cluster, of unlike degrees; instance.yaml beside them."""
    folder = tmp_path_factory.mktemp("plans")
    paths = [folder / "from.json", folder / "to.json"]
    text = (ROOT / "instances" / "hetero_small.yaml").read_text(encoding="utf-8")
    text = text.replace("profiles/", f"{ROOT / 'instances' / 'profiles'}/")
    for path, degrees in zip(paths, ("[1]", "[2]"), strict=True):
        own = folder / "instance.yaml"
        own.write_text(text.replace("[1, 2, 4]\n", f"{degrees}\n", 1))
        output("solve", own, "--gap", 0.05, "--workers", 1, "--out", path)
    return paths


def test_bug_switches_between_other_lengths_differed_from_their_instance(
    two: list[Path], tmp_path: Path
) -> None:
    """Its model and machines are those of the file, or the first field that differs is told.

    Of the sequence length and the batch, which two plans need not share, a switch is free. `show`
    and `report` take the file; both kinds of moves take no less than one; no instance is a plan.
    """
    out, own, page = (tmp_path / name for name in ("switch.json", "instance.yaml", "page.html"))
    shown = output("switch", *two, "--out", out)
    assert output("show", out) == shown
    assert run("report", out, "--out", page)[0] == 0
    both = json.loads(output("switch", *two, "--moves", "both", "--json"))
    text = (two[0].parent / "instance.yaml").read_text(encoding="utf-8")
    switch = SwitchDocument.model_validate_json(out.read_text(encoding="utf-8"))
    assert switch.time_s <= both["time_s"]
    batch = f"global_batch: {switch.workload.global_batch}"
    for old, new, expected in (
        ("", "", 0),
        ("nodes: 1", "nodes: 2", 1),
        (batch, "global_batch: 64", 0),
    ):
        own.write_text(text.replace(old, new, 1), encoding="utf-8")
        code, words, _ = run("verify", out, "--instance", own)
        assert code == expected
        assert ("refused: instance.cluster.groups[0].nodes: found 1, " in words) is (code == 1)
    refused("switch", two[0], out)
    refused("verify", out, "--instance", two[0])


def test_plans_of_other_models_or_machines_are_refused(two: list[Path]) -> None:
    """One line that names the first difference; sequence length and batch may differ."""
    own, names = PlanDocument.read(two[0]), ("a.json", "b.json")
    link = "instance.cluster.groups.0.inter_node.bandwidth_bytes_per_s"
    for path, value, named in (
        ("instance.workload.name", "other", r"workload\.name: found 'other', expected "),
        ("instance.workload.layer_runs.1.count", 23, r"workload\.layer_runs\[1\]\.count"),
        (link, 7e9, r"cluster\.groups\[0\]\.inter_node\.bandwidth_bytes_per_s"),
        ("instance.cluster.groups.1.nodes", 2, r"cluster\.groups\[1\]\.nodes"),
    ):
        with pytest.raises(PlanError, match=rf"{named}.*the model and machines of a\.json"):
            check_alike(own, forged_plan(own, {path: value}), names)
    longer = {"instance.workload.sequence_length": 64, "instance.workload.global_batch": 8}
    check_alike(own, forged_plan(own, longer), names)


def test_what_an_owner_sends_to_many_nodes_is_one_sending() -> None:
    """Unless it goes by way of a GPU, of whose node all receivers are."""
    sent = example().sendings
    direct = [(way.number, way.begin, way.end, way.source) for way in sent if way.via is None]
    assert len(direct) == len(set(direct)) < len(sent)
