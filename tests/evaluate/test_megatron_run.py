"""Megatron-LM's flags: what they make of a model, and which of them are refused where."""

import json
from pathlib import Path

import pytest

from formulations.errors import PlanError
from formulations.instance import Instance
from solver.evaluate.launched import Launched, Settings
from solver.evaluate.megatron_run import Flag, launched, read_flags
from solver.evaluate.run_plan import planned
from solver.export.job import Job
from tests.conftest import stored_instance, text_of
from tests.export_cases import WHOLE_EXPERTS, instance_of
from tests.recorded import Cases, digest, recorded
from tests.refusals import check_refusals, refusals

RUNS = text_of("megatron_runs.txt").splitlines()
PP, TP, CP = Flag.PP, Flag.TP, Flag.CP


def read(text: str, instance: Instance | None = None) -> Launched:
    """The run of GPT-2, unless said otherwise: 12 blocks, batches of 16."""
    return launched(read_flags(text, "a.txt"), instance or instance_of())


def with_nodes(nodes: int, gpus_per_node: int = 4) -> Instance:
    return stored_instance("one_group", nodes=nodes, gpus=gpus_per_node)


@recorded("megatron_run")
def test_runs_are_the_recorded_ones() -> Cases:
    """Splits, strategies, modes that hide traffic, sharing of experts and sequences, by flags."""
    search = "target: any, overlap: {tensor_parallel: 0.5, gradient_sync: 0.5}"
    instances = {"plain": instance_of(), "overlap": instance_of(search=search)}
    instances["experts"] = WHOLE_EXPERTS.instance
    for name, instance in instances.items():
        for flags in RUNS:
            try:
                run = read(flags, instance)
                yield f"{name} {flags}", [list(run.boundaries), digest(run)]
            except PlanError as error:
                yield f"{name} {flags}", str(error)


test_refused = check_refusals("megatron", read)


def test_ranks_are_megatrons(reference: Path) -> None:
    """Each case of the reference in its default order: all groups; in the other, it is refused."""
    for case in json.loads((reference / "megatron/ranks.json").read_text())["cases"]:
        instance = with_nodes(case["world"] // 4)
        words = f"{TP} {case['tp']} {PP} {case['pp']} {CP} {case['cp']}"
        nodes = (0,) * (case["world"] // 4)
        if case["order"] != "tp-cp-ep-dp-pp":
            run = read(f"{words}\n--use-tp-pp-dp-mapping", instance)
            with pytest.raises(PlanError, match="replicas one after the other"):
                planned(instance, run, nodes)
            continue
        own = planned(instance, read(words, instance), nodes)
        ranks = Job(own.instance, own.plan).ranks
        assert own.config.dp == case["dp"]
        for name, field in (("tp", "tensor"), ("dp-cp", "data"), ("pp", "stage")):
            others = [one for one in ("tensor", "data", "stage") if one != field]
            groups: dict[tuple[int, ...], list[int]] = {}
            for rank in ranks:
                place = tuple(getattr(rank, one) for one in others)
                groups.setdefault(place, []).append(rank.rank)
            assert sorted(groups.values()) == sorted(case["groups"][name])


#: Two kinds of GPUs, of which one has flash attention.
MIXED = stored_instance("old_and_new")
#: Whole experts, tensor groups of 3 GPUs, and attention without flash, with the nodes in order.
PLACES = {
    "nodes": (with_nodes(4), (0,) * 4),
    "experts": (WHOLE_EXPERTS.instance, (1, 0, 1)),
    "twelve": (with_nodes(1, 12).but(workload={"kv_heads": 12}), (0,)),
    "unfused": (instance_of("catalogue: gpt2, flash_attention: false"), (0,)),
    "t5": (instance_of("catalogue: t5-3b"), (0,)),
    "mixed": (MIXED, (0, 1)),
}


@refusals("sharing")
def test_sharing_that_does_not_fit(text: str, message: str) -> None:
    """One line, with the flag's place; whole sequences need not be divided."""
    place, words = text.split(": ")
    instance, order = PLACES[place]
    with pytest.raises(PlanError, match=f"^a.txt:1: {message}"):
        planned(instance, read(words, instance), order)
    whole = planned(PLACES["twelve"][0], read(f"{TP} 3 {PP} 4", PLACES["twelve"][0]), (0,))
    assert whole.config.widest_tp == 3


def flags_of(text: str) -> Settings:
    return read_flags(text, "a.txt")


def test_flags_stand_as_on_a_command_line() -> None:
    """Several a line, with =, over the end of a line, with remarks; lines are told."""
    flags = flags_of(
        "--bf16 --seq-length=128  # a remark\n--recompute-modules core_attn \\\n  mlp\n"
    )
    assert flags.number(Flag.LENGTH, 1) == 128
    assert flags.has(Flag.BF16)
    assert flags.stated[Flag.MODULES].values == ("core_attn", "mlp")
    assert (flags.place(Flag.LENGTH), flags.place(Flag.MODULES)) == ("a.txt:1", "a.txt:2")
    assert (flags.place(Flag.TP), flags.number(Flag.TP, 3)) == ("a.txt", 3)
    assert (flags.optional(Flag.TP), flags.optional(Flag.LENGTH)) == (None, 128)
    assert str(flags.error(Flag.PP, "2", ", alone")) == f"a.txt: no {Flag.PP}, alone; allowed: 2"


def test_flags_of_the_model_are_left_alone() -> None:
    text = text_of("flags_left_alone.txt")
    assert flags_of(text).stated == {}


test_flags_refused = check_refusals("flags", lambda text: flags_of(text).number(Flag.TP, 1))


def test_flags_that_exclude_each_other() -> None:
    flags = flags_of("--bf16\n--fp16")
    flags.exclude(Flag.BF16, Flag.SEQUENCE)
    with pytest.raises(PlanError, match=r"^a\.txt:2: --fp16, beside --bf16 \(a\.txt:1\); allowed"):
        flags.exclude(Flag.BF16, Flag.FP16)
