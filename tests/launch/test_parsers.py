"""Exported files before the frameworks' own parsers and configuration classes."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from solver.export import huggingface, megatron_bridge, torchtitan
from solver.export.job import Job
from solver.export.megatron import parsed, written
from tests.conftest import present
from tests.export_cases import CHUNKS, SHARDED, UNEVEN, UNTIED, job_of, recomputing

pytestmark = pytest.mark.launch


def needed(name: str) -> Any:
    """A module of the extra `launch`; skips where it does not import."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} does not import: {error} (extra `launch`)")


def imported(folder: Path, name: str, text: str) -> ModuleType:
    path = folder / name
    path.write_text(text)
    spec = present(importlib.util.spec_from_file_location(path.stem, path))
    module = importlib.util.module_from_spec(spec)
    present(spec.loader).exec_module(module)
    return module


@pytest.mark.parametrize("job", [UNEVEN, CHUNKS])
def test_megatron_core_reads_the_layout(job: Job) -> None:
    """Rank by rank, chunk by chunk what our own parser finds; and it is valid."""
    layouts = needed("megatron.core.transformer.pipeline_parallel_layer_layout")
    text = written(job.pieces)
    layout = layouts.PipelineParallelLayerLayout.from_str(text, job.config.pp)
    layout.validate_layer_layout(num_layers=job.num_blocks, mtp_num_layers=None)
    ranks, letters = layout.layout, {"embedding": "E", "decoder": "t", "loss": "L"}
    chunks = [rank[c] for c in range(len(ranks[0])) for rank in ranks]
    found = ["".join(letters[one.name] for one in chunk) for chunk in chunks]
    assert found == parsed(text, job.config.pp, job.num_blocks)


def test_megatron_core_takes_the_recipe(tmp_path: Path) -> None:
    """Every field that the recipe sets is one of Megatron-Core's, and the model is configured."""
    transformer = needed("megatron.core.transformer.transformer_config").TransformerConfig
    ddp = needed("megatron.core.distributed").DistributedDataParallelConfig
    optimizer = needed("megatron.core.optimizer").OptimizerConfig
    known = {"model": transformer, "ddp": ddp, "optimizer": optimizer}
    settings = megatron_bridge.settings(CHUNKS)
    for name in settings:
        part, field = name.split(".")
        if part in known and field != "seq_length":
            assert field in {one.name for one in fields(known[part])}
    own = {name[6:]: value for name, value in settings.items() if name.startswith("model.")}
    del own["seq_length"]
    sizes = {"num_layers": 12, "hidden_size": 768, "num_attention_heads": 12}
    config = transformer(**sizes, pipeline_dtype=needed("torch").float, **own)
    assert config.virtual_pipeline_model_parallel_size == 2


@pytest.mark.parametrize("job", [UNEVEN, CHUNKS, SHARDED, recomputing(UNEVEN, (3, 3, 2, 4))])
def test_bug_torchtitan_refused_configurations_at_start(job: Job, tmp_path: Path) -> None:
    """Its own manager parses what a recipe of Llama 3, cut to 12 blocks, becomes by the plan.

    CUDA graphs, which are on unless told, and pipeline stages exclude each other.
    """
    needed("torchtitan.models.llama3.config_registry")  # asks for triton, too
    for name, text in torchtitan.files(job).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "planned_recipe.py").write_text(RECIPE)
    done = subprocess.run(
        [sys.executable, "-c", PARSE], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    schedule = str(tmp_path / torchtitan.SCHEDULE) if job.config.pp > 1 else None
    read = [job.config.pp, job.micro_batches * job.config.micro_batch, schedule]
    assert json.loads(done.stdout.splitlines()[-1]) == [*read, job.recompute_way != "none"]


RECIPE = """
from planned_config import apply
from torchtitan.models.llama3.config_registry import llama3_8b

def planned():
    config = llama3_8b()
    del config.model_spec.model.layers[12:]
    return apply(config)
"""
PARSE = """
import json
from torchtitan.config import ConfigManager

config = ConfigManager().parse_args(["--module", "planned_recipe", "--config", "planned"])
read = [config.parallelism.pipeline_parallel_degree, config.training.local_batch_size]
read += [config.parallelism.pipeline_parallel_schedule_csv or None]
print(json.dumps([*read, config.activation_checkpoint is not None]))
"""


def test_accelerate_takes_the_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their product is the number of processes; plugins take what they are given."""
    configs = needed("accelerate.parallelism_config")
    plugins = needed("accelerate.utils")
    texts = huggingface.accelerate_files(SHARDED)
    module = imported(tmp_path, huggingface.ACCELERATOR, texts[huggingface.ACCELERATOR])
    assert configs.ParallelismConfig(**module.SIZES).total_size == 8
    monkeypatch.setenv("FSDP_VERSION", "2")
    plugin = plugins.FullyShardedDataParallelPlugin(**module.SHARDING)
    assert (plugin.fsdp_version, plugin.reshard_after_forward) == (2, True)
    assert plugin.auto_wrap_policy.__name__ == "transformer_auto_wrap_policy"  # block by block
    assert plugins.GradientAccumulationPlugin(**module.ACCUMULATION).sync_each_batch


def test_deepspeed_takes_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank gets the layers of its stage."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    pipe = needed("deepspeed.pipe")
    topologies = needed("deepspeed.runtime.pipe.topology")
    texts = huggingface.deepspeed_files(UNEVEN)
    module = imported(tmp_path, huggingface.PIPELINE, texts[huggingface.PIPELINE])
    assert issubclass(module.PlannedPipeline, pipe.PipelineModule)
    topology = topologies.PipeDataParallelTopology(num_pp=4, num_dp=2)
    for rank in UNEVEN.ranks:
        bounds: dict[str, int] = {}
        part = SimpleNamespace(_topo=topology, global_rank=rank.rank, _set_bounds=bounds.update)
        module.PlannedPipeline._partition_layers(part)
        stage = UNEVEN.plan.replicas[rank.data].stages[rank.stage]
        assert (bounds["start"], bounds["stop"]) == stage.layers
        assert topology.get_coord(rank.rank) == (rank.stage, rank.data)


@pytest.mark.parametrize(
    "job",
    [UNEVEN, job_of(workload=UNTIED, dp=1, shares=(8,), zero=0, order=(0, 1, 1))],
    ids=["ZeRO 1", "one replica"],
)
def test_deepspeed_has_an_optimizer_for_the_configuration(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its engine ends jobs at start where formats of weights and gradients do not go together."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    engines = needed("deepspeed.runtime.engine")
    monkeypatch.setenv("WORLD_SIZE", "1")
    loaded = json.loads(huggingface.deepspeed_files(job)[huggingface.ENGINE])
    loaded["train_batch_size"] //= job.config.dp  # of one replica: this is one process
    config = needed("deepspeed.runtime.config").DeepSpeedConfig(loaded)
    assert config.gradient_accumulation_steps == job.micro_batches
    assert config.zero_optimization_stage == 1
    engine = SimpleNamespace(
        _config=config,
        fp16_enabled=lambda: config.float16_config.enabled,
        bfloat16_enabled=lambda: config.bfloat16_config.enabled,
        amp_enabled=lambda: False,
        zero_optimization=lambda: config.zero_enabled,
        zero_optimization_stage=lambda: config.zero_optimization_stage,
        zero_cpu_offload=lambda: False,
        zero_compute_grad_norm=lambda: True,
    )
    kind = engines.DeepSpeedEngine
    engine.get_data_types = lambda: kind.get_data_types(engine)
    monkeypatch.setattr(engines, "is_zero_supported_optimizer", lambda optimizer: True)
    assert kind._do_optimizer_sanity_check(engine, None) == engines.BFLOAT16


def test_modules_do_not_hide_packages() -> None:
    """Names of written modules are no names of frameworks."""
    written = (huggingface.ACCELERATOR, huggingface.PIPELINE)
    names = (torchtitan.MODULE, *written, megatron_bridge.RECIPE)
    assert not {Path(name).stem for name in names} & set(sys.stdlib_module_names)
