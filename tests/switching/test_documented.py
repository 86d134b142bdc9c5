"""Switch files and the command: verify replays them, and refuses what was changed."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.lengths.problem import Moves
from solver.document import PlanDocument
from solver.options import SolveOptions
from solver.report.document import build_document
from solver.report.switch import device_rows, switch_page, switch_picture
from solver.switch_document import SwitchDocument
from solver.switching.documented import check_alike, switch_document
from solver.verify import verify_switch
from tests.command_line import output, refused, run
from tests.conftest import ROOT
from tests.expert_instances import expert_instance
from tests.hand_made import result_of, uniform_plans
from tests.random_shapes import zoned
from tests.resealed import Changes, resealed
from tests.resealed import forged as forged_plan
from tests.small_instances import random_instance
from tests.unlike_degrees import unlike_instance

Fields = dict[str, Any]

SMALL = ROOT / "instances" / "hetero_small.yaml"
SVG = "{http://www.w3.org/2000/svg}"
MOVES: tuple[Moves, ...] = ("parameters", "gradients", "both")


def plan_files(instance: Instance, most: int = 4) -> list[PlanDocument]:
    """Plan files of the first, the last and some other shapes of an instance."""
    plans = list({plan.shape: plan for plan in uniform_plans(instance)}.values())
    step = max(1, len(plans) // most)
    return [build_document(result_of(instance, one), SolveOptions()) for one in plans[::step]]


def switches(instance: Instance, moves: Moves) -> Iterator[SwitchDocument]:
    """Between all pairs of some plans."""
    for before, after in permutations(plan_files(instance), 2):
        yield switch_document(before, after, moves)


def zoned_instance(seed: int) -> Instance:
    """Nodes of several types in up to four zones, links of their own between some."""
    return zoned(random_instance(seed), 2 * seed + 1)


@pytest.mark.parametrize(
    "make", [random_instance, expert_instance, unlike_instance, zoned_instance]
)
@pytest.mark.parametrize("moves", MOVES)
def test_switches_are_replayed(make: Callable[[int], Instance], moves: Moves) -> None:
    """ZeRO of all stages, experts, context, mixed GPUs and tensor degrees; never above the rule."""
    for seed in (0, 4):
        instance = make(seed)
        search = instance.search.but(zero=(0, 1, 3))
        for found in switches(instance.but(search=search), moves):
            checked = verify_switch(found)
            assert checked.complete, checked.problems
            assert found.time_s <= found.published_s


@cache
def example() -> SwitchDocument:
    """A switch with a class of several slices, sent by way of a GPU and directly."""
    instance = expert_instance(4)
    found = list(switches(instance, "both"))
    return max(found, key=lambda one: len(one.classes))


def _other_source(fields: Fields) -> None:
    used = {one["gpu"] for one in fields["devices"]}
    for own in fields["classes"]:
        sources = {one["source"] for one in own["sendings"]}
        receivers = {gpu for one in own["sendings"] for gpu in one["receivers"]}
        for gpu in sorted(used - sources - receivers):
            own["sendings"][0].update(source=gpu)
            return


def _one_slice_less(fields: Fields) -> None:
    own = max(fields["classes"], key=lambda one: len(one["slices"]))
    own["slices"].pop()


def _other_channel(fields: Fields) -> None:
    fields["bound_by"] = [{"line": "send", "at": fields["devices"][0]["gpu"]}]


def _same_names(fields: Fields) -> None:
    groups = fields["cluster"]["groups"]
    groups.append(groups[0])


def _one_receiver_less(fields: Fields) -> None:
    for own in fields["classes"]:
        gpus = {gpu for one in own["sendings"] for gpu in one["receivers"]}
        if len(gpus) > 1 and all(one["via"] is None for one in own["sendings"]):
            for one in own["sendings"]:
                one["receivers"] = [gpu for gpu in one["receivers"] if gpu != min(gpus)]
            own["sendings"] = [one for one in own["sendings"] if one["receivers"]]
            return
    raise AssertionError


def _half_slice(fields: Fields) -> None:
    one = fields["classes"][0]["slices"][0]
    first, end, units = one["split"]
    one["split"] = [2 * first, first + end, 2 * units]


def _other_plan(fields: Fields) -> None:
    fields["after"] = fields["before"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_other_source, "a GPU that holds the class"),
        ({"classes.0.sendings.0.begin": lambda ns: ns + 2}, "every byte of the class once"),
        (_one_slice_less, "classes: slices"),
        ({"classes": lambda own: own[:-1]}, "classes: slices"),
        ({"classes": lambda own: [*own, own[0]]}, "classes: slices"),
        ({"time_s": lambda time_s: 0.9 * time_s}, "time_s"),
        ({"published_s": lambda time_s: 1.1 * time_s}, "published_s"),
        ({"lower_bound_s": lambda time_s: 1.1 * time_s}, "lower_bound_s"),
        (_other_channel, "bound_by"),
        ({"classes.0.slices.0.size_bytes": lambda size: size - 2}, "classes: slices"),
        ({"classes.0.sendings.0.receivers.0": "fast-7:0"}, "GPUs of the cluster"),
        (_same_names, "names of nodes"),
        (_one_receiver_less, "all GPUs that lack it, no others"),
        (_half_slice, "classes: slices"),
        ({"devices.0.sent_inside_bytes": lambda size: size + 1}, "devices"),
        (_other_plan, "classes: slices"),
        ({"after.replicas.0.stages.-1.layers.1": lambda end: end - 1}, "layers"),
    ],
)
def test_forged_switch_is_refused(change: Changes, named: str) -> None:
    """A false source, volume, time or bound is named, though the digest fits."""
    checked = verify_switch(resealed(example(), change))
    assert any(named in problem for problem in checked.problems), checked


def test_changed_switch_is_refused() -> None:
    """The digest tells."""
    changed = example().but(published_s=7.0)
    assert any("digest" in problem for problem in verify_switch(changed).problems)


def test_page_names_every_sending() -> None:
    """And every GPU that sends or receives."""
    page = switch_page(example())
    for own in example().classes:
        for one in own.sendings:
            assert f"<td>{one.source}</td>" in page
    assert "Sendings" in page


def test_picture_has_times_and_volumes() -> None:
    """Bars of the three times are as long as they take; those of GPUs add up to all volumes."""
    document = example()
    root = ElementTree.fromstring(switch_picture(document))
    bars = [one for one in root.iter(f"{SVG}rect") if one.find(f"{SVG}title") is not None]
    widths = [float(one.attrib["width"]) for one in bars]
    times = document.time_s, document.lower_bound_s, document.published_s
    for width, time_s in zip(widths, times, strict=False):
        assert width / widths[2] == pytest.approx(time_s / times[2], abs=1e-3)
    texts = [one.findtext(f"{SVG}title") or "" for one in bars[3:]]
    rows = device_rows(document)
    assert len(texts) == sum(size > 0 for _, volumes in rows for size in volumes)
    largest = max(max(volumes) for _, volumes in rows)
    scale = max(widths[3:]) / largest
    drawn = sum(widths[3:]) / scale
    assert drawn == pytest.approx(sum(sum(volumes) for _, volumes in rows), rel=1e-3)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two plan files of FASOP's small cluster, of unlike degrees."""
    folder = tmp_path_factory.mktemp("plans")
    paths = [folder / "from.json", folder / "to.json"]
    for path, degrees in zip(paths, ("[1]", "[2]"), strict=True):
        text = SMALL.read_text(encoding="utf-8")
        text = text.replace("profiles/", f"{ROOT / 'instances' / 'profiles'}/")
        own = folder / "instance.yaml"
        own.write_text(text.replace("[1, 2, 4]\n", f"{degrees}\n", 1))
        assert run("solve", own, "--gap", 0.05, "--workers", 1, "--out", path)[0] == 0
    return paths


def test_switch_writes_a_file_that_all_commands_take(two: list[Path], tmp_path: Path) -> None:
    """`verify`, `show` and `report`; both kinds of moves take no less than one."""
    out, page = tmp_path / "switch.json", tmp_path / "page.html"
    text = output("switch", *two, "--moves", "both", "--out", out)
    assert "no plan takes less than" in text
    assert run("verify", out)[0] == 0
    assert run("show", out, "--svg", tmp_path / "picture.svg")[1] == text
    assert "published rule" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert run("report", out, "--out", page)[0] == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    times = [
        json.loads(run("switch", *two, "--moves", one, "--json")[1])["time_s"] for one in MOVES
    ]
    assert times[2] >= max(times[:2])


def test_switch_is_compared_with_an_instance(two: list[Path], tmp_path: Path) -> None:
    """Its model and machines are those of the file, or the first field that differs is told."""
    out, own = tmp_path / "switch.json", tmp_path / "instance.yaml"
    run("switch", *two, "--out", out)
    text = (two[0].parent / "instance.yaml").read_text(encoding="utf-8")
    own.write_text(text, encoding="utf-8")
    assert run("verify", out, "--instance", own)[0] == 0
    own.write_text(text.replace("nodes: 1", "nodes: 2", 1), encoding="utf-8")
    code, found, _ = run("verify", out, "--instance", own)
    assert code == 1
    assert "refused: instance.cluster: groups: found 1 " in found


def test_bug_switches_between_other_lengths_differed_from_their_instance(
    two: list[Path], tmp_path: Path
) -> None:
    """Of the sequence length and the batch, which two plans need not share, a switch is free."""
    out, own = tmp_path / "switch.json", tmp_path / "instance.yaml"
    run("switch", *two, "--out", out)
    switch = SwitchDocument.model_validate_json(out.read_text(encoding="utf-8"))
    text = (two[0].parent / "instance.yaml").read_text(encoding="utf-8")
    batch = f"global_batch: {switch.workload.global_batch}"
    assert batch in text
    own.write_text(text.replace(batch, "global_batch: 64"), encoding="utf-8")
    assert run("verify", out, "--instance", own)[0] == 0


def test_a_plan_and_itself_need_nothing(two: list[Path], tmp_path: Path) -> None:
    """No time, no sendings, and a file that verifies."""
    out = tmp_path / "switch.json"
    text = output("switch", two[0], two[0], "--out", out)
    assert "nothing moves" in text
    assert run("verify", out)[0] == 0
    assert run("report", out, "--out", tmp_path / "page.html")[0] == 0


def test_plans_of_other_models_or_machines_are_refused(two: list[Path]) -> None:
    """One line that names the first difference; sequence length and batch may differ."""
    own = PlanDocument.model_validate_json(two[0].read_text(encoding="utf-8"))
    link = "instance.cluster.groups.0.inter_node.bandwidth_bytes_per_s"
    for path, value, named in (
        ("instance.workload.name", "other", "workload: name: other"),
        ("instance.workload.layer_runs.1.count", 23, "workload: layers"),
        (link, 7e9, "cluster: groups[0].inter_node"),
        ("instance.cluster.groups.1.nodes", 2, "cluster: groups"),
    ):
        with pytest.raises(PlanError, match=r"as in a\.json") as caught:
            check_alike(own, forged_plan(own, {path: value}), ("a.json", "b.json"))
        assert named in str(caught.value)
    longer = {"instance.workload.sequence_length": 64, "instance.workload.global_batch": 8}
    check_alike(own, forged_plan(own, longer), ("a.json", "b.json"))


def test_files_that_are_no_plans_are_refused(two: list[Path], tmp_path: Path) -> None:
    """A switch, an instance, nothing."""
    out = tmp_path / "switch.json"
    assert run("switch", *two, "--out", out)[0] == 0
    text = tmp_path / "text.json"
    text.write_text("name: x\n", encoding="utf-8")
    for other in (out, text, tmp_path / "none.json"):
        for pair in ((two[0], other), (other, two[0])):
            refused("switch", *pair)


def test_options_for_plans_are_refused_for_switches(two: list[Path], tmp_path: Path) -> None:
    """A trace is of plans, and an instance is no plan."""
    out = tmp_path / "switch.json"
    run("switch", *two, "--out", out)
    refused("report", out, "--trace", tmp_path / "x.json", "--out", tmp_path / "x.html")
    refused("verify", out, "--instance", two[0])


def test_bug_experts_that_nobody_holds_are_refused() -> None:
    """More ranks to share the experts than there are: some would be in no GPU, and never arrive."""
    own = [one for one in plan_files(expert_instance(4)) if one.shape and one.shape.ep > 1]
    before, after = (one.but(shape=one.shape and one.shape.but(ep=64)) for one in own[:2])
    checked = verify_switch(switch_document(before, after, "parameters"))
    assert [one.split(":")[0] for one in checked.problems] == ["before.shape.ep", "after.shape.ep"]
