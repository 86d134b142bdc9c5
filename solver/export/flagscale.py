"""FlagScale: process meshes of Megatron-LM-FL, each with degrees and a device type of its own.

A mesh is a run of pipeline stages of equal degrees on GPUs of one type. Its five numbers are
TP CP EP DP PP, in this order in the code (help texts and website differ). The runtime sorts ranks
by the first place of their device type in the list, so types are named only where that leaves the
plan's order as it is, and are all the same word elsewhere. The rules that end a job at start
(`parallel_context.py`, `arguments_fs.py`) are asserted on what was written.
"""

from itertools import groupby
from typing import NamedTuple

from solver.export.job import Job
from solver.export.launcher import launcher_files
from solver.export.megatron import (
    COMMAND,
    USAGE,
    argument_file,
    batches,
    recomputation,
    setup,
    strategies,
)

ARGUMENTS = "flagscale_args.txt"
START = "/path/to/FlagScale/flagscale/train/megatron/train_gpt.py"
ONE_TYPE = "gpu"  #: device type of all where real ones would move ranks
_EXPERT_TP = "expert_tensor_parallel_size_per_process_mesh"  #: else that of each mesh
_PER_STAGE = "recompute_{}_per_stage_micro_batch"


class Mesh(NamedTuple):
    """A run of stages that are launched alike."""

    tp: int
    dp: int
    pp: int
    ep: int
    device_type: str

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """As the runtime reads them: TP CP EP DP PP."""
        return self.tp, 1, self.ep, self.dp, self.pp


def meshes(job: Job) -> list[Mesh]:
    """The process meshes of a plan, in the order of the stages."""
    types = _device_types(job)
    runs = groupby(range(job.config.pp), key=lambda k: (job.degrees(k), types[k]))
    return [
        Mesh(degrees.tp, job.config.dp * degrees.parts, len(list(run)), job.config.ep, name)
        for (degrees, name), run in runs
    ]


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
    types, planned, config = _device_types(job), meshes(job), job.config
    options: dict[str, object] = {
        "enable_hetero": True,
        "tensor_model_parallel_size": planned[0].tp,
        "pipeline_model_parallel_size": config.pp,
        "hetero_process_meshes": [size for mesh in planned for size in mesh.sizes],
        "hetero_device_types": [mesh.device_type for mesh in planned],
        "hetero_pipeline_layer_split": [len(piece.blocks) for piece in job.pieces],
        _EXPERT_TP: [config.etp] * len(planned) if config.etp else None,
        **batches(job, config.micro_batch // job.degrees(0).parts),
        **strategies(job),
        "use_partial_reduce_for_shared_embedding": config.zero > 0,
    }
    numbers = [recomputed.blocks for recomputed in job.recomputed]
    if any(numbers) and not recomputation(job):
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
    command = f'{COMMAND} --hetero-current-device-type "$DEVICE_TYPE"'
    title = (
        f"FlagScale arguments of {job.title}.\n"
        "# Every host passes its own --hetero-current-device-type: torchrun.sh does."
    )
    return {
        ARGUMENTS: argument_file(job, title, options),
        **launcher_files(job, USAGE, command, setup(job, ARGUMENTS), exports, START),
    }
