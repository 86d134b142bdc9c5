"""Files of FlagScale, Megatron-Bridge, torchtitan, DeepSpeed and Accelerate: what they say."""

import csv
import io
import json
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from formulations.errors import PlannerError
from formulations.plan import Degrees, Group
from formulations.space.launch import able
from solver.export import accelerate, deepspeed, flagscale, megatron_bridge, torchtitan
from solver.export.job import Job, read_settings
from solver.export.megatron import read_arguments
from solver.export.registry import EXPORTERS
from solver.options import ExportTarget
from tests.export_cases import (
    CHUNKS,
    ONE_STAGE,
    SHARDED,
    UNEVEN,
    UNTIED,
    WHOLE_EXPERTS,
    instance_of,
    job_of,
    plan_of,
    recomputing,
)
from tests.hand_made import results
from tests.seeds import one_each

ZERO_BUBBLE = job_of(workload=UNTIED, schedule="zb-h1")
ALL = set(EXPORTERS)


@pytest.mark.parametrize(
    ("job", "targets"),
    [
        (UNEVEN, ALL - {"accelerate"}),
        (job_of(), ALL - {"accelerate", "torchtitan"}),  # tied embeddings on several stages
        (CHUNKS, {"megatron", "megatron-bridge", "torchtitan"}),
        (ZERO_BUBBLE, {"torchtitan"}),
        (job_of(workload=UNTIED, schedule="gpipe"), {"torchtitan"}),
        (recomputing(UNEVEN, (3, 3, 2, 4)), ALL - {"accelerate"}),
        (recomputing(UNEVEN, (2, 2, 2, 2)), {"megatron", "megatron-bridge", "flagscale"}),
        (recomputing(UNEVEN, (3, 1, 0, 0)), {"flagscale"}),
        (SHARDED, {"torchtitan", "deepspeed", "accelerate"}),
        (job_of(workload=UNTIED, zero=1, **ONE_STAGE), ALL - {"torchtitan", "accelerate"}),
        (job_of(workload=UNTIED, shares=(5, 3)), set()),
        (job_of(workload=UNTIED, zero=0), ALL - {"accelerate", "deepspeed"}),
        (
            job_of(workload=UNTIED, tp=2, dp=1, pp=4, shares=(8,), order=(0, 1, 1), zero=0),
            ALL - {"accelerate", "deepspeed"},
        ),
    ],
)
def test_each_plan_goes_to_those_who_can(job: Job, targets: set[ExportTarget]) -> None:
    """Whoever takes it writes files that sum to the plan; the others say what to change."""
    able = {name for name, one in EXPORTERS.items() if not one.faults(job)}
    assert able == targets
    for name, exporter in EXPORTERS.items():
        if name in able:
            exporter.check(job, exporter.files(job))
        for fault in exporter.faults(job):
            assert fault.found
            assert fault.change


def flagscale_arguments(job: Job) -> Mapping[str, list[str]]:
    """Flags of FlagScale's argument file."""
    return read_arguments(flagscale.files(job)[flagscale.ARGUMENTS])


def test_meshes_follow_the_gpu_types() -> None:
    """Two stages on A100 first, then two on A10; TP CP EP DP PP each, and blocks per stage."""
    found = flagscale_arguments(job_of(order=(0, 1, 1)))
    assert found["--hetero-process-meshes"] == ["1", "1", "1", "2", "2", "1", "1", "1", "2", "2"]
    assert found["--hetero-device-types"] == ["A100-80", "A10"]
    assert found["--hetero-pipeline-layer-split"] == ["3", "3", "2", "4"]
    assert found["--pipeline-model-parallel-size"] == ["4"]


@pytest.mark.parametrize(
    "job",
    [
        job_of(),  # A10, A100, A10: FlagScale would sort the A10 together
        job_of(pp=2, dp=4, cuts=(0, 7, 14), shares=(2,) * 4, order=(0, 1, 1)),
        job_of(pp=1, dp=8, cuts=(0, 14), shares=(1,) * 8, order=(1, 0, 1)),  # a mixed stage
    ],
)
def test_ranks_keep_their_place(job: Job) -> None:
    """Sorted by device type and rank, as FlagScale does, the order is the plan's."""
    found = flagscale_arguments(job)
    types, meshes = found["--hetero-device-types"], found["--hetero-process-meshes"]
    assert len(types) == len(meshes) // 5
    script = flagscale.files(job)["torchrun.sh"]
    lines = script.splitlines()
    own = [line.rpartition("DEVICE_TYPE=")[2] for line in lines if "DEVICE_TYPE=" in line]
    sizes = [len(host.gpus) for host in job.hosts]
    ranks = [types.index(name) for name, n in zip(own, sizes, strict=True) for _ in range(n)]
    assert ranks == sorted(ranks)
    assert '--hetero-current-device-type "$DEVICE_TYPE"' in script


def test_recomputation_stage_by_stage() -> None:
    """Flag, method `block` and number of blocks, each for all four micro-batches of a stage."""
    found = flagscale_arguments(recomputing(UNEVEN, (3, 1, 0, 0)))
    rows = {name: found[f"--recompute-{name}-per-stage-micro-batch"] for name in NAMES}
    assert rows == {
        "granularity": ["[1,4,1]", "[1,4,1]", "[1,4,0]", "[1,4,0]"],
        "method": ["[1,4,1]"] * 4,
        "num-layers": ["[1,4,3]", "[1,4,1]", "[1,4,0]", "[1,4,0]"],
    }
    assert found["--recompute-granularity"] == ["full"]


NAMES = ("granularity", "method", "num-layers")


def test_job_that_flagscale_would_end_at_start_is_found() -> None:
    """Stages, types, batches and order of the meshes are asserted on the file."""
    job = job_of(order=(0, 1, 1))
    texts = flagscale.files(job)
    for old, new in (
        ("1 1 1 2 2 1 1 1 2 2", "1 1 1 2 2 1 1 1 2 1"),
        ("--hetero-device-types A100-80 A10", "--hetero-device-types A10 A100-80"),
        ("1 1 1 2 2 1 1 1 2 2", "1 2 1 1 2 1 1 1 2 2"),
        ("--hetero-pipeline-layer-split 3 3", "--hetero-pipeline-layer-split 2 4"),
    ):
        assert old in texts[flagscale.ARGUMENTS]
        changed = texts[flagscale.ARGUMENTS].replace(old, new)
        with pytest.raises(PlannerError, match="read back"):
            EXPORTERS["flagscale"].check(job, {**texts, flagscale.ARGUMENTS: changed})


def unlike_degrees(search: str = "target: any", workload: str = UNTIED) -> Job:
    """One replica of two stages: tp 2 in two parts on the A100s, tp 1 in two on a node of A10s."""
    job = job_of(search, workload, pp=2, dp=1, cuts=(0, 9, 14), shares=(8,), order=(0, 1))
    (replica,) = job.plan.replicas
    groups = [Group(node=0, gpus=(0, 1, 2, 3)), Group(node=1, gpus=(0, 1))]
    degrees = Degrees(tp=2, parts=2), Degrees(tp=1, parts=2)
    stages = [
        stage.but(group=group, degrees=own)
        for stage, group, own in zip(replica.stages, groups, degrees, strict=True)
    ]
    changed = replica.but(stages=tuple(stages))
    shape = job.shape.but(degrees=degrees, nodes_used=(1, 1))
    plan = job.plan.but(shape=shape, replicas=(changed,))
    return Job(job.instance, plan)


def test_unlike_degrees_are_meshes() -> None:
    """Each with its tp and dp; the micro-batch of the first is half of the plan's two sequences."""
    job = unlike_degrees()
    assert EXPORTERS["flagscale"].faults(job) == []
    EXPORTERS["flagscale"].check(job, flagscale.files(job))
    found = flagscale_arguments(job)
    assert found["--hetero-process-meshes"] == ["2", "1", "1", "2", "1", "1", "1", "1", "2", "1"]
    assert found["--micro-batch-size"] == ["1"]
    assert "--sequence-parallel" in found
    places = [(one.tensor, one.data, one.stage) for one in job.ranks]
    assert places == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1), (0, 1, 1)]


def test_meshes_whose_tensor_groups_do_not_split_experts() -> None:
    """One GPU per expert on every mesh; a file that does not say so is found."""
    assert EXPORTERS["flagscale"].faults(WHOLE_EXPERTS) == []
    texts = flagscale.files(WHOLE_EXPERTS)
    EXPORTERS["flagscale"].check(WHOLE_EXPERTS, texts)
    found = flagscale_arguments(WHOLE_EXPERTS)
    assert found["--hetero-process-meshes"] == ["2", "1", "4", "2", "2"]
    (flag,) = (name for name in found if name.startswith("--expert-tensor"))
    assert (flag, found[flag]) == ("--expert-tensor-parallel-size-per-process-mesh", ["1"])
    name = flagscale.ARGUMENTS
    with pytest.raises(PlannerError, match="expert tensor parallelism per mesh"):
        EXPORTERS["flagscale"].check(
            WHOLE_EXPERTS, {**texts, name: texts[name].replace(f"{flag} 1", "")}
        )


def test_unlike_degrees_need_sequence_parallelism() -> None:
    """And equal tensor groups for tied embeddings; FlagScale ends other jobs at start."""
    whole = unlike_degrees("target: any, sequence_parallel: false")
    (fault,) = EXPORTERS["flagscale"].faults(whole)
    assert "whose unlike tensor groups need sequence_parallel" in fault.found
    (tied,) = EXPORTERS["flagscale"].faults(unlike_degrees(workload="catalogue: gpt2"))
    assert "whose tied embeddings lie on tensor groups of one size" in tied.found


def applied(job: Job, layers: int, monkeypatch: pytest.MonkeyPatch) -> "Fields":
    """A configuration after the recipe of a job, without torch and Megatron-Bridge."""
    training = "megatron.bridge.training"
    torch = Fields(bfloat16="bfloat16", float16="float16", float32="float32")
    monkeypatch.setitem(sys.modules, "torch", torch)
    for name in ("megatron", "megatron.bridge", training):
        monkeypatch.setitem(sys.modules, name, Fields())
    for name in ("comm_overlap.CommOverlapConfig", "mixed_precision.MixedPrecisionConfig"):
        module, kind = name.split(".")
        monkeypatch.setitem(sys.modules, f"{training}.{module}", Fields(**{kind: Fields}))
    scope: dict[str, Any] = {}
    exec(compile(megatron_bridge.files(job)[megatron_bridge.RECIPE], "x.py", "exec"), scope)
    parts = ("train", "ddp", "optimizer", "dist")
    model, dataset = Fields(num_layers=layers, seq_length=4096), Fields(sequence_length=4096)
    cfg = Fields(model=model, dataset=dataset, **{name: Fields() for name in parts})
    result: Fields = scope["apply"](cfg)
    assert result is cfg
    return result


def test_recipe_of_megatron_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applied to a configuration, its fields are the plan's; a model of other layers is refused."""
    cfg = applied(CHUNKS, 12, monkeypatch)
    assert cfg.model.pipeline_model_parallel_layout == "Et|t*2|t|t*2|t|t|t*2|t*2L"
    assert cfg.model.virtual_pipeline_model_parallel_size == 2
    assert (cfg.train.global_batch_size, cfg.train.micro_batch_size) == (16, 2)
    with pytest.raises(ValueError, match="12 layers, not 13"):
        applied(CHUNKS, 13, monkeypatch)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
def test_bug_recipe_left_precision_and_overlap_to_megatron_bridge(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe's own bf16_mixed and overlaps would overwrite what the plan says in ddp."""
    cfg = applied(job_of(workload=f"{UNTIED}, precision: {precision}"), 12, monkeypatch)
    weights = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[precision]
    formats = cfg.mixed_precision.params_dtype, cfg.mixed_precision.pipeline_dtype
    assert formats == (weights, weights)
    assert getattr(cfg.mixed_precision, precision)
    assert cfg.mixed_precision.grad_reduce_in_fp32
    assert not cfg.comm_overlap.overlap_grad_reduce


def test_bug_megatron_bridge_ended_jobs_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of another length than the model's, and what excludes a layout, are set right."""
    cfg = applied(UNEVEN, 12, monkeypatch)
    assert cfg.dataset.sequence_length == cfg.model.seq_length == 1024
    assert not cfg.model.account_for_embedding_in_pipeline_split
    assert cfg.model.num_layers_in_first_pipeline_stage is None


def test_recipe_says_how_gpus_share_experts_and_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Megatron-LM's arguments do."""
    search = "target: any, context_parallel: 2, context_method: all_to_all, expert_parallel: 4"
    instance = instance_of("catalogue: mixtral-8x7b, sequence_length: 512", search)
    degrees = (Degrees(tp=1, cp=2),) * 2
    job = Job(instance, plan_of(instance, (0, 17, 34), dp=2, pp=2, ep=4, degrees=degrees))
    cfg = applied(job, 32, monkeypatch)
    found = cfg.model.cp_comm_type, cfg.model.moe_token_dispatcher_type
    assert found == ("a2a", "alltoall")
    whole = applied(WHOLE_EXPERTS, 32, monkeypatch).model
    sizes = whole.tensor_model_parallel_size, whole.expert_tensor_parallel_size
    assert (*sizes, whole.expert_model_parallel_size) == (2, 1, 4)


class Fields(ModuleType):
    """A configuration or a module that takes every field."""

    def __init__(self, **fields: object) -> None:
        super().__init__("fields")
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def rows_of(job: Job) -> list[list[str]]:
    """The schedule file, row by row."""
    return list(csv.reader(io.StringIO(torchtitan.files(job)[torchtitan.SCHEDULE])))


def test_schedule_file_of_1f1b() -> None:
    """The last of four ranks does one forward, one backward; the first warms up with three."""
    rows = rows_of(UNEVEN)
    assert rows[3] == ["3F0", "3B0", "3F1", "3B1", "3F2", "3B2", "3F3", "3B3"]
    assert rows[0] == ["0F0", "0F1", "0F2", "0F3", "0B0", "0B1", "0B2", "0B3"]
    assert rows[1] == ["1F0", "1F1", "1F2", "1B0", "1F3", "1B1", "1B2", "1B3"]


def test_schedule_file_of_zero_bubble_and_chunks() -> None:
    """Backward in two parts, weights last; a rank's chunks are stages r and r + 4."""
    rows = rows_of(ZERO_BUBBLE)
    assert rows[3] == [
        "3F0",
        "3I0",
        "3F1",
        "3I1",
        "3F2",
        "3I2",
        "3F3",
        "3I3",
        "3W0",
        "3W1",
        "3W2",
        "3W3",
    ]
    assert rows[0][:6] == ["0F0", "0F1", "0F2", "0F3", "0I0", "0W0"]
    chunks = {cell[0] for cell in rows_of(CHUNKS)[1]}
    assert chunks == {"1", "5"}


def test_modules_of_torchtitan() -> None:
    """Blocks from 0, embedding before the first, norm and head after the last."""
    found = read_settings(torchtitan.files(UNEVEN)[torchtitan.MODULE])
    parts = found["parallelism.module_fqns_per_model_part"]
    assert isinstance(parts, list)
    assert parts[0] == ["tok_embeddings", "layers.0", "layers.1", "layers.2"]
    assert parts[3] == ["layers.8", "layers.9", "layers.10", "layers.11", "norm", "lm_head"]
    assert found["training.local_batch_size"] == 8
    assert "pytorch/issues/172668" in torchtitan.files(UNEVEN)[torchtitan.MODULE]


@pytest.mark.parametrize(
    ("job", "replicate", "shard", "policy"),
    [
        (UNEVEN, 1, 2, "never"),
        (SHARDED, 1, 8, "always"),
        (job_of(workload=UNTIED, zero=0), 2, 1, "never"),
    ],
)
def test_sharding_of_torchtitan(job: Job, replicate: int, shard: int, policy: str) -> None:
    """ZeRO 1 of several stages and 3 of one are FSDP2, 0 is replication."""
    found = read_settings(torchtitan.files(job)[torchtitan.MODULE])
    degrees = [f"parallelism.data_parallel_{name}_degree" for name in ("replicate", "shard")]
    assert [found[name] for name in degrees] == [replicate, shard]
    assert found["parallelism.fsdp_reshard_after_forward"] == policy


@pytest.mark.parametrize(
    ("workload", "line"),
    [
        (f"{UNTIED}, precision: fp16", "precision: fp16 is not for torchtitan"),
        (f"{UNTIED}, gradient_precision: bf16", "gradient_precision: 16 bit is not for torchtitan"),
    ],
)
def test_precision_of_torchtitan(workload: str, line: str) -> None:
    """bf16 or fp32, gradients in fp32."""
    (fault,) = EXPORTERS["torchtitan"].faults(job_of(workload=workload))
    assert fault.found.startswith(line)


@pytest.mark.parametrize(("precision", "name"), [("bf16", "bfloat16"), ("fp32", "float32")])
def test_bug_torchtitan_ran_fp32_plans_in_bf16(precision: str, name: str) -> None:
    """Its mixed precision is bf16 unless told."""
    found = torchtitan.settings(job_of(workload=f"{UNTIED}, precision: {precision}"))
    assert found[torchtitan.Field.PARAMETERS] == name


def test_pipeline_and_configuration_of_deepspeed() -> None:
    """Parts are those of the chain with embedding and head; batches multiply to the global one."""
    texts = deepspeed.files(recomputing(UNEVEN, (3, 3, 2, 4)))
    found = read_settings(texts[deepspeed.MODULE])
    assert found["PARTS"] == [0, 4, 7, 9, 14]
    assert (found["STAGES"], found["REPLICAS"], found["RECOMPUTED_RUN"]) == (4, 2, 1)
    configuration = json.loads(texts[deepspeed.CONFIG])
    assert configuration["gradient_accumulation_steps"] == 4
    assert configuration["zero_optimization"] == {"stage": 1}
    assert deepspeed.MODULE not in deepspeed.files(SHARDED)


def test_bug_deepspeed_ended_jobs_of_one_replica_at_start() -> None:
    """Without ZeRO it takes no gradients in fp32 of weights in bf16; ZeRO 1 of one replica is 0."""
    cuts = (0, 3, 4, 5, 7, 8, 9, 11, 14)
    job = job_of(workload=UNTIED, dp=1, pp=8, cuts=cuts, shares=(8,), zero=0)
    assert not EXPORTERS["deepspeed"].faults(job)
    assert json.loads(deepspeed.files(job)[deepspeed.CONFIG])["zero_optimization"] == {"stage": 1}


def test_bug_deepspeed_ran_fp8_plans_in_fp32() -> None:
    """It has no fp8 of its own."""
    instance = UNEVEN.instance
    job = Job(instance.but(workload={"precision": "fp8"}), UNEVEN.plan)
    (fault, *_) = EXPORTERS["deepspeed"].faults(job)
    assert fault.found.startswith("precision: fp8 is not for DeepSpeed, ")


def test_accelerator_of_sharded_replicas() -> None:
    """FSDP2 over all processes, reduced with every micro-batch; without ZeRO it is DDP."""
    found = read_settings(accelerate.files(SHARDED)[accelerate.MODULE])
    assert found["SIZES"] == {"dp_replicate_size": 1, "dp_shard_size": 8, "tp_size": 1}
    assert found["SHARDING"] == {
        "fsdp_version": 2,
        "reshard_after_forward": True,
        "auto_wrap_policy": "transformer_based_wrap",
    }
    assert found["ACCUMULATION"] == {"num_steps": 1, "sync_each_batch": True}
    plain = job_of(workload=UNTIED, zero=0, **ONE_STAGE)
    assert read_settings(accelerate.files(plain)[accelerate.MODULE])["SIZES"] is None


@pytest.mark.parametrize("name", EXPORTERS)
def test_modules_are_python(name: ExportTarget) -> None:
    """What is written compiles."""
    for job in (UNEVEN, CHUNKS, ZERO_BUBBLE, SHARDED):
        if not EXPORTERS[name].faults(job):
            for file, text in EXPORTERS[name].files(job).items():
                if file.endswith(".py"):
                    compile(text, file, "exec")


@pytest.mark.parametrize("seed", one_each(range(60), 12))
def test_any_plan_is_exported_whole_or_refused(seed: int) -> None:
    """Random plans: whoever takes one writes files that sum to it, and rules agree on who can."""
    for result in results([seed]):
        assert result.plan is not None
        job = Job(result.instance, result.plan)
        launchers = able(result.instance, result.plan)
        for name, exporter in EXPORTERS.items():
            if not exporter.faults(job):
                exporter.check(job, exporter.files(job))
            if name in ("megatron", "flagscale", "torchtitan") and name not in launchers:
                assert exporter.faults(job)
