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

PP, TP, CP, EP, EXPERT_TP = Flag.PP, Flag.TP, Flag.CP, Flag.EP, Flag.EXPERT_TP
LAYOUT, FIRST, LAST = Flag.LAYOUT, Flag.FIRST, Flag.LAST
EMBEDDING, LOSS, CHUNKS, PER_CHUNK = (
    Flag.EMBEDDING,
    Flag.LOSS,
    Flag.CHUNKS,
    Flag.BLOCKS_PER_CHUNK,
)


def read(text: str, instance: Instance | None = None) -> Launched:
    """The run of GPT-2, unless said otherwise: 12 blocks, batches of 16."""
    return launched(read_flags(text, "a.txt"), instance or instance_of())


def with_blocks(number: int, **cluster: int) -> Instance:
    """A model with so many blocks, on one node of 64 GPUs unless said otherwise."""
    fields = {"gpus_per_node": 64, "nodes": 1, **cluster}
    text = f"""
name: x
workload:
  sizes: {{hidden_size: 512, layers: {number}, heads: 64, vocabulary_size: 1000, ffn_size: 512}}
  sequence_length: 64
  global_batch: 64
cluster: {{groups: [{{name: n, gpu: H100, gpus_per_node: {fields["gpus_per_node"]},
  nodes: {fields["nodes"]}, inter_node: InfiniBand HDR}}]}}
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{PP} 4\n{LAYOUT} Et*3|t*3|t*2|t*4", ":2: .*one L, the last.*; allowed: E, then 12 t"),
        (f"{PP} 4\n{LAYOUT} Et*3|t*9|t*9|t*4L", ":2: .*25 blocks t, where the model has 12"),
        (f"{PP} 4\n{LAYOUT} Et*6|t*6L", ":2: .*2 pieces, which 4 pipeline ranks do not divide"),
        (f"{PP} 4\n{LAYOUT} Et*3|x|t*5|t*4L", ":2: .*the letter 'x'"),
        (f"{PP} 4\n{LAYOUT} Et*3||t*5|t*4L", ":2: .*piece 1 is empty; allowed: a layer in every"),
        (f"{PP} 2 {LAYOUT} Et*6|t*6L\n{CHUNKS} 2", f":2: .*, beside {LAYOUT}"),
        (f"{PP} 2 {LAYOUT} Et*6|t*6L\n{FIRST} 2", f":2: .*, beside {LAYOUT}"),
        (f"{PP} 2 {FIRST} 2\n{LOSS}", f":2: .*, beside {FIRST}"),
        (f"{PP} 2 {CHUNKS} 2\n{PER_CHUNK} 3", ":1: .*, beside|:2: .*, beside"),
        (f"{PP} 5", ":1: .*12 layers for 5 pipeline ranks"),
        (f"{PP} 2\n{FIRST} 13", ":2: .*-1 layers for 1 pipeline ranks"),
        (f"{FIRST} 5", ":1: .*7 layers for 0 pipeline ranks"),
        (f"{PP} 2\n{EMBEDDING}", ":2: .*13 layers for 2 pipeline ranks"),
        (f"{PP} 2\n{PER_CHUNK} 4", ":2: .* 4; allowed: a divisor of 6"),
        (f"{PP} 2\n{CHUNKS} 4", ":2: .* 4: a rank has 6; allowed: chunks of equally many"),
        (f"\n{CHUNKS} 2", f":2: .* with {PP} 1"),
        (f"{PP} 3\n{FIRST} 12", ":1: .* 3: stage 1 has none"),
        ("--num-layers 24", ":1: .* 24; allowed: 12, the blocks of the model"),
        ("--seq-length 512", ":1: .* 512; allowed: 1024, workload.sequence_length"),
        ("--global-batch-size 8", ":1: .* 8; allowed: 16, workload.global_batch"),
        ("--hidden-size 512", ":1: .* 512; allowed: 768"),
        ("--num-query-groups 2", ":1: .* 2; allowed: 12"),
        ("--fp16", ":1: --fp16; allowed: bf16, workload.precision"),
        ("--bf16\n--fp16", ":2: --fp16, beside --bf16"),
        ("--fp8-format hybrid", ":1: .*; allowed: bf16, workload.precision"),
        ("--grad-reduce-in-bf16", ":1: .*; allowed: 4 bytes, workload.gradient_precision"),
        ("--exp-avg-dtype bf16", ":1: .*; allowed: fp32, workload.optimizer_state"),
        (
            "--context-parallel-size 2\n--cp-comm-type allgather",
            ":2: .* allgather; allowed: p2p or a2a, for all blocks the same",
        ),
        (
            "--expert-model-parallel-size 2",
            ": no --moe-token-dispatcher-type, with .* 2; allowed: alltoall or flex",
        ),
        (
            f"{TP} 4\n{EXPERT_TP} 2",
            f":2: .* 2; allowed: 1, or 4 as {TP}: plans split experts",
        ),
        (
            "--data-parallel-sharding-strategy optim",
            ":1: .* alone; allowed: --use-megatron-fsdp with it",
        ),
        (
            "--use-megatron-fsdp\n--data-parallel-sharding-strategy all",
            ":2: .* all; allowed: no_shard or optim or optim_grads or optim_grads_params",
        ),
        ("--optimizer sgd", ":1: --optimizer sgd; allowed: adam"),
        (
            "--recompute-granularity selective\n--recompute-modules core_attn mlp",
            ":2: --recompute-modules core_attn mlp; allowed: core_attn",
        ),
        ("--mtp-num-layers 1", ":1: .* 1; allowed: 0, what the config.json has"),
        ("--recompute-granularity some", ":1: .* some; allowed: full or selective"),
        ("--recompute-granularity full", "no --recompute-method .*; allowed: uniform or block"),
        ("--recompute-method block", ":1: .* alone; allowed: --recompute-granularity full"),
        ("--recompute-granularity full --recompute-method x", ":1: .* x; allowed: uniform or b"),
        (
            "--recompute-granularity full --recompute-method uniform\n--recompute-num-layers 2",
            ":2: .* 2; allowed: 1 with the method uniform",
        ),
        (
            f"{PP} 2 {CHUNKS} 2 --recompute-granularity full\n--recompute-method block",
            ":2: .* block; allowed: uniform where ranks have several chunks",
        ),
        ("--recompute-activations\n--recompute-granularity full", ":1: .*beside|:2: .*beside"),
    ],
)
def test_refused(text: str, message: str) -> None:
    """File and line, what was found, what is allowed."""
    with pytest.raises(PlanError, match=rf"^a\.txt({message}|: {message})") as caught:
        read(text)
    assert "; allowed: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_attention_without_flash() -> None:
    """Flash attention is not what an instance without it has memory for."""
    instance = instance_of("catalogue: gpt2, flash_attention: false")
    assert read("--attention-backend unfused", instance) == read("", instance)
    run = read("--attention-backend flash", instance)
    with pytest.raises(PlanError, match=r"a\.txt:1: --attention-backend flash; allowed"):
        planned(instance, run, (0,) * instance.cluster.groups[0].nodes)


def test_encoder_and_decoder_are_refused() -> None:
    """Layouts know one stack of blocks."""
    with pytest.raises(PlanError, match="an encoder and a decoder"):
        read(f"{PP} 2", instance_of("catalogue: t5-3b"))


def test_ranks_are_megatrons(reference: Path) -> None:
    """Each case of the reference in its default order: all groups; in the other, it is refused."""
    for case in json.loads((reference / "megatron/ranks.json").read_text())["cases"]:
        instance = with_blocks(8, gpus_per_node=4, nodes=case["world"] // 4)
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
    instance = with_blocks(8, gpus_per_node=4, nodes=4)
    for words in (f"{PP} 1", f"{TP} 4 {PP} 4"):
        plain, other = (
            planned(instance, read(f"{words} {flag}", instance), (0,) * 4)
            for flag in ("", "--use-tp-pp-dp-mapping")
        )
        assert plain.plan == other.plan


def test_tensor_groups_that_split_a_sequence_divide_its_tokens() -> None:
    """64 tokens for 3 GPUs: Megatron-LM ends such a job; whole sequences are a plan."""
    instance = with_blocks(8, gpus_per_node=12, nodes=1).but(workload={"kv_heads": 12})
    words = f"{TP} 3 {PP} 4"
    assert planned(instance, read(words, instance), (0,)).config.widest_tp == 3
    with pytest.raises(
        PlanError, match=r"a\.txt:1: tensor groups of 3 .*; allowed: a divisor of 64"
    ):
        planned(instance, read(f"{words} --sequence-parallel", instance), (0,))


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"{EP} 2", "a.txt:1: 1 GPU per expert, where tensor groups do not split the sequence"),
        (f"{EP} 4 --sequence-parallel", "a.txt:1: 4 GPUs that share experts; allowed: a divisor"),
    ],
)
def test_whole_experts_that_do_not_fit(words: str, message: str) -> None:
    """Tensor groups of whole sequences; more GPUs than the two of a stage."""
    text = f"{TP} 2 {PP} 4 {EXPERT_TP} 1 --moe-token-dispatcher-type alltoall {words}"
    with pytest.raises(PlanError, match=f"^{message}"):
        planned(WHOLE_EXPERTS.instance, read(text, WHOLE_EXPERTS.instance), (1, 0, 1))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"{CP} 3", "a.txt:1: 3 tensor groups of 1 GPUs per sequence; allowed: what divides the 4"),
        (f"{CP} 128", "a.txt:1: 128 tensor groups"),
        (f"{EP} 2 --moe-token-dispatcher-type alltoall", "a.txt:1: 2 GPUs for the experts of a"),
    ],
)
def test_sharing_that_does_not_fit(words: str, message: str) -> None:
    """One line, with the flag's place."""
    instance = with_blocks(8, gpus_per_node=4, nodes=4)
    with pytest.raises(PlanError, match=f"^{message}"):
        planned(instance, read(words, instance), (0,) * 4)
