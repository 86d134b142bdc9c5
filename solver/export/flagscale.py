"""FlagScale: process meshes of Megatron-LM-FL, each with degrees and a device type of its own.

A mesh is a run of pipeline stages of equal degrees on GPUs of one type. Its five numbers are
TP CP EP DP PP, in this order in the code (help texts and website differ). The runtime sorts ranks
by the first place of their device type in the list, so types are named only where that leaves the
plan's order as it is, and are all the same word elsewhere. Rules that would end a job at start
(`parallel_context.py`, `arguments_fs.py`) stand in `formulations.space.slots.mesh_fault`.
"""

from itertools import groupby

from solver.export import megatron
from solver.export.job import Job, launcher_files

ARGUMENTS = "flagscale_args.txt"
START = "/path/to/FlagScale/flagscale/train/megatron/train_gpt.py"
ONE_TYPE = "gpu"  #: device type of all where real ones would move ranks
_EXPERT_TP = "expert_tensor_parallel_size_per_process_mesh"  #: else that of each mesh
_PER_STAGE = "recompute_{}_per_stage_micro_batch"


def _device_types(job: Job) -> list[str]:
    """Per stage: its GPU type, or one word for all where a type would come twice or be mixed."""
    of_stage = [
        {rank.gpu_type for rank in job.ranks if rank.stage == k} for k in range(job.config.pp)
    ]
    runs = [gpu_type for gpu_type, _ in groupby(rank.gpu_type for rank in job.ranks)]
    if len(set(runs)) < len(runs) or any(len(types) > 1 for types in of_stage):
        return [ONE_TYPE] * job.config.pp
    return [types.pop() for types in of_stage]


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    types, config, meshes, device_types = _device_types(job), job.config, list[int](), list[str]()
    runs = groupby(range(config.pp), key=lambda k: (job.degrees(k), types[k]))
    for (degrees, device_type), stages in runs:
        meshes += [degrees.tp, 1, config.ep, config.dp * degrees.parts, len(list(stages))]
        device_types.append(device_type)
    options: dict[str, object] = {
        "enable_hetero": True,
        "tensor_model_parallel_size": job.tp,
        "pipeline_model_parallel_size": config.pp,
        "hetero_process_meshes": meshes,
        "hetero_device_types": device_types,
        "hetero_pipeline_layer_split": [len(piece.blocks) for piece in job.pieces],
        _EXPERT_TP: [config.etp] * len(device_types) if config.etp else None,
        **megatron.batches(job, config.micro_batch // job.degrees(0).parts),
        **megatron.strategies(job),
        "use_partial_reduce_for_shared_embedding": config.zero > 0,
    }
    numbers = [recomputed.blocks for recomputed in job.recomputed]
    if any(numbers) and not megatron.recomputation(job):
        # the first n blocks of each stage, for all micro-batches; method 1 is `block`
        rows = ("granularity", [int(n > 0) for n in numbers]), ("method", [1] * len(numbers))
        options |= {
            "recompute_granularity": "full",
            "recompute_method": "block",
            "recompute_num_layers": max(numbers),
        }
        options |= {
            _PER_STAGE.format(name): [f"[1,{job.micro_batches},{value}]" for value in values]
            for name, values in (*rows, ("num_layers", numbers))
        }
    exports = {rank.host: {"DEVICE_TYPE": types[rank.stage]} for rank in job.ranks}
    command = f'{megatron.COMMAND} --hetero-current-device-type "$DEVICE_TYPE"'
    head = (
        f"FlagScale arguments of {job.title}.",
        "Every host passes its own --hetero-current-device-type: torchrun.sh does.",
    )
    return {
        ARGUMENTS: megatron.argument_file(job, head, options),
        **launcher_files(
            job, megatron.USAGE, command, megatron.setup(job, ARGUMENTS), exports, START
        ),
    }
