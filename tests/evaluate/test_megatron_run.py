"""Megatron-LM's flags: what they make of a model, and which of them are refused where."""

import json
from pathlib import Path

import pytest

from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from solver.evaluate.launched import Launched
from solver.evaluate.megatron_flags import Flag, read_flags
from solver.evaluate.megatron_run import launched
from solver.evaluate.run_plan import planned
from solver.export import megatron
from solver.export.job import Job
from tests.export_cases import WHOLE_EXPERTS, instance_of
from tests.refusals import refusals

PP, TP, CP, EP, EXPERT_TP = Flag.PP, Flag.TP, Flag.CP, Flag.EP, Flag.EXPERT_TP
LAYOUT, FIRST, LAST, LOSS = Flag.LAYOUT, Flag.FIRST, Flag.LAST, Flag.LOSS
EMBEDDING, CHUNKS, PER_CHUNK = Flag.EMBEDDING, Flag.CHUNKS, Flag.BLOCKS_PER_CHUNK


def read(text: str, instance: Instance | None = None) -> Launched:
    """The run of GPT-2, unless said otherwise: 12 blocks, batches of 16."""
    return launched(read_flags(text, "a.txt"), instance or instance_of())


def with_nodes(nodes: int, gpus_per_node: int = 4) -> Instance:
    text = f"""
name: x
workload:
  sizes: {{hidden_size: 512, layers: 8, heads: 64, vocabulary_size: 1000, ffn_size: 512}}
  sequence_length: 64
  global_batch: 64
cluster: {{groups: [{{name: n, gpu: H100, gpus_per_node: {gpus_per_node}, nodes: {nodes},
  inter_node: InfiniBand HDR}}]}}
"""
    return parse_instance(text, "x.yaml", Path())


@pytest.mark.parametrize(
    ("flags", "boundaries"),
    [
        ("", (0, 14)),
        (f"{PP} 4", (0, 4, 7, 10, 14)),
        (f"{PP}=4", (0, 4, 7, 10, 14)),
        (f"{PP} 2 {CHUNKS} 2", (0, 4, 7, 10, 14)),
        (f"{PP} 2 {PER_CHUNK} 3", (0, 4, 7, 10, 14)),
        (f"{PP} 3 {FIRST} 2", (0, 3, 8, 14)),
        (f"{PP} 3 {LAST} 2", (0, 6, 11, 14)),
        (f"{PP} 3 {FIRST} 1 {LAST} 3", (0, 2, 10, 14)),
        (f"{PP} 2 {FIRST} 8 {LAST} 4 {CHUNKS} 2", (0, 5, 7, 11, 14)),
        (f"{PP} 2 {EMBEDDING} {LOSS}", (0, 7, 14)),
        (f"{PP} 7 {EMBEDDING} {LOSS}", (0, 2, 4, 6, 8, 10, 12, 14)),
        (f"{PP} 4 {LAYOUT} Et*3|t*3|t*2|t*4L", (0, 4, 7, 9, 14)),
        (f"{PP} 2 {LAYOUT} 'E|t*6|(tt)*2|t*2L'", (0, 1, 7, 11, 14)),
    ],
)
def test_split(flags: str, boundaries: tuple[int, ...]) -> None:
    """Even, uneven at the ends, with embedding and loss counted, and as a layout; by chunks."""
    assert read(flags).boundaries == boundaries


def test_defaults_and_strategies() -> None:
    """A bare file is one stage of micro-batches of one; flags add ZeRO 1 and recomputation."""
    plain = read("# nothing\n\n")
    assert (plain.tp, plain.pp, plain.vpp, plain.micro_batch, plain.zero) == (1, 1, 1, 1, 0)
    assert (plain.schedule, plain.recompute, plain.target) == ("1f1b", "none", "megatron")
    assert read("--use-distributed-optimizer").zero == 1
    assert read("--recompute-activations").recompute == "selective"
    full = "--recompute-granularity full --recompute-method"
    assert read(f"{full} uniform").first_blocks is None
    first = read(f"{full} block \\\n  --recompute-num-layers 2  # of every rank")
    assert (first.recompute, first.first_blocks) == ("full", 2)


def test_modes_are_those_of_the_flags() -> None:
    """Sequence parallelism and overlap are the run's; what it does not hide is seen."""
    search = "target: any, overlap: {tensor_parallel: 0.5, gradient_sync: 0.5}"
    instance = instance_of(search=search)
    shown = read(f"{TP} 2 --sequence-parallel", instance).settings
    assert shown["sequence_parallel"] is True
    assert shown["overlap"].tensor_parallel == 0  # type: ignore[attr-defined]
    hidden = f"{TP} 2 --sequence-parallel --tp-comm-overlap --overlap-grad-reduce"
    assert read(hidden, instance).settings["overlap"] == instance.search.overlap
    assert "sequence_parallel" not in read("", instance).settings


@refusals("megatron")
def test_refused(text: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        read(text)
    assert str(caught.value) == message


def test_encoder_and_decoder_are_refused() -> None:
    with pytest.raises(PlanError, match="an encoder and a decoder"):
        read(f"{PP} 2", instance_of("catalogue: t5-3b"))


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


def test_ranks_of_one_replica_or_stage_are_in_any_order() -> None:
    """Then both mappings are the same."""
    instance = with_nodes(4)
    for words in (f"{PP} 1", f"{TP} 4 {PP} 4"):
        plain, other = (
            planned(instance, read(f"{words} {flag}", instance), (0,) * 4)
            for flag in ("", "--use-tp-pp-dp-mapping")
        )
        assert plain.plan == other.plan


def test_sharing_of_experts_and_sequences() -> None:
    """Degrees, the way to share sequences (a ring unless it is said), and what FSDP splits."""
    words = f"{CP} 2 {EP} 8 --moe-token-dispatcher-type alltoall"
    run = read(words)
    assert (run.cp, run.ep, run.settings["context_method"]) == (2, 8, "ring")
    assert read(f"{words} --cp-comm-type a2a").settings["context_method"] == "all_to_all"
    sharded = "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads"
    assert (read(sharded).zero, read("--use-megatron-fsdp").zero) == (2, 0)


def test_experts_that_tensor_groups_do_not_split() -> None:
    """As exported: four GPUs share them, two of each tensor group; the tensor degree is no news."""
    job = WHOLE_EXPERTS
    run = read(megatron.files(job)[megatron.ARGUMENTS], job.instance)
    assert planned(job.instance, run, (1, 0, 1)).config == job.config
    assert read(f"{TP} 2 {EXPERT_TP} 2", job.instance).etp is None
    assert read(f"{TP} 2 {EXPERT_TP} 1").etp is None  # a model without experts


WHOLE = f"{TP} 2 {PP} 4 {EXPERT_TP} 1 --moe-token-dispatcher-type alltoall"
TWELVE = with_nodes(1, 12).but(workload={"kv_heads": 12})


@pytest.mark.parametrize(
    ("instance", "order", "words", "message"),
    [
        (with_nodes(4), (0,) * 4, f"{CP} 3", "3 tensor groups of 1 GPUs per sequence; allowed: w"),
        (with_nodes(4), (0,) * 4, f"{CP} 128", "128 tensor groups"),
        (
            with_nodes(4),
            (0,) * 4,
            f"{EP} 2 --moe-token-dispatcher-type alltoall",
            "2 GPUs for the experts of a",
        ),
        (  # tensor groups of whole sequences; more GPUs than the two of a stage
            WHOLE_EXPERTS.instance,
            (1, 0, 1),
            f"{WHOLE} {EP} 2",
            "1 GPU per expert, where tensor groups do not split the sequence",
        ),
        (
            WHOLE_EXPERTS.instance,
            (1, 0, 1),
            f"{WHOLE} {EP} 4 --sequence-parallel",
            "4 GPUs that share experts; allowed: a divisor",
        ),
        (  # 64 tokens for 3 GPUs: Megatron-LM ends such a job; whole sequences are a plan
            TWELVE,
            (0,),
            f"{TP} 3 {PP} 4 --sequence-parallel",
            "tensor groups of 3 .*; allowed: a divisor of 64",
        ),
        (
            instance_of("catalogue: gpt2, flash_attention: false"),
            (0,),
            "--attention-backend flash",
            "--attention-backend flash; allowed",
        ),
    ],
)
def test_sharing_that_does_not_fit(
    instance: Instance, order: tuple[int, ...], words: str, message: str
) -> None:
    """One line, with the flag's place."""
    with pytest.raises(PlanError, match=f"^a.txt:1: {message}"):
        planned(instance, read(words, instance), order)


def test_whole_sequences_need_not_be_divided() -> None:
    """And attention without flash is what an instance without it has anyway."""
    assert planned(TWELVE, read(f"{TP} 3 {PP} 4", TWELVE), (0,)).config.widest_tp == 3
    unfused = instance_of("catalogue: gpt2, flash_attention: false")
    assert read("--attention-backend unfused", unfused) == read("", unfused)
