"""FlagScale: process meshes of Megatron-LM-FL, each with degrees and a device type of its own.

A mesh is a run of pipeline stages of equal degrees on GPUs of one type. Its five numbers are
TP CP EP DP PP, in this order in the code (help texts and website differ). The runtime sorts ranks
by the first place of their device type in the list, so types are named only where that leaves the
plan's order as it is, and are all the same word elsewhere. The rules that end a job at start
(`parallel_context.py`, `arguments_fs.py`) are asserted on what was written.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby, product
from typing import NamedTuple

from solver.export.job import Job
from solver.export.launcher import check_launcher, expect, launcher_files
from solver.export.megatron import (
    COMMAND,
    USAGE,
    Arguments,
    argument_file,
    batch_arguments,
    precision_arguments,
    read_arguments,
    recomputation,
    setup,
    strategies,
)

ARGUMENTS = "flagscale_args.txt"
ONE_TYPE = "gpu"  #: device type of all where real ones would move ranks
_EXPERT_TP = "--expert-tensor-parallel-size-per-process-mesh"  #: else that of each mesh
_PER_STAGE = "--recompute-{}-per-stage-micro-batch"


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
    runs = groupby(range(job.shape.pp), key=lambda k: (job.sizes(k), types[k]))
    return [
        Mesh(sizes.tp, job.shape.dp * sizes.parts, len(list(run)), job.shape.ep, name)
        for (sizes, name), run in runs
    ]


def _device_types(job: Job) -> list[str]:
    """Per stage: its GPU type, or one word for all where a type would come twice or be mixed."""
    held = [{one.gpu_type for one in job.ranks if one.stage == k} for k in range(job.shape.pp)]
    runs = [kind for kind, _ in groupby(one.gpu_type for one in job.ranks)]
    if len(set(runs)) < len(runs) or any(len(types) > 1 for types in held):
        return [ONE_TYPE] * job.shape.pp
    return [types.pop() for types in held]


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    types = _device_types(job)
    head = (
        f"FlagScale arguments of {job.title}.",
        "Add those of the model. The order of the hosts (hosts.txt) places the stages.",
        "Every host passes its own --hetero-current-device-type: torchrun.sh does.",
    )
    batches = batch_arguments(job, job.shape.micro_batch // job.sizes(0).parts)
    text = argument_file(head, [*_degrees(job), *batches, *_strategies(job)])
    own = {one.host: {"DEVICE_TYPE": types[one.stage]} for one in job.ranks}
    command = f'{COMMAND} --hetero-current-device-type "$DEVICE_TYPE"'
    return {
        ARGUMENTS: text,
        **launcher_files(job, USAGE, command, setup(job, ARGUMENTS), own),
    }


def _degrees(job: Job) -> Arguments:
    found = meshes(job)
    whole = [(_EXPERT_TP, *(str(job.shape.etp) for _ in found))] if job.shape.etp else []
    return [
        ("--enable-hetero",),
        ("--tensor-model-parallel-size", str(found[0].tp)),
        ("--pipeline-model-parallel-size", str(sum(mesh.pp for mesh in found))),
        ("--hetero-process-meshes", *(str(size) for mesh in found for size in mesh.sizes)),
        ("--hetero-device-types", *(mesh.device_type for mesh in found)),
        ("--hetero-pipeline-layer-split", *(str(len(piece.blocks)) for piece in job.pieces)),
        *whole,
    ]


def _strategies(job: Job) -> Arguments:
    """Memory strategies; recomputation stage by stage where stages differ."""
    found = [*strategies(job), *precision_arguments(job)]
    if job.shape.zero:
        found.append(("--use-partial-reduce-for-shared-embedding",))
    per_stage = any(one.blocks for one in job.recomputed) and not recomputation(job)
    return [*found, *_per_stage(job)] if per_stage else found


def _per_stage(job: Job) -> Arguments:
    """The first n blocks of each stage, for all micro-batches; method 1 is `block`."""
    numbers = [one.blocks for one in job.recomputed]
    rows = {
        "granularity": [int(number > 0) for number in numbers],
        "method": [1] * len(numbers),
        "num-layers": numbers,
    }
    flags = [
        (_PER_STAGE.format(name), *(f"[1,{job.micro_batches},{value}]" for value in values))
        for name, values in rows.items()
    ]
    most = str(max(numbers))
    return [
        ("--recompute-granularity", "full"),
        ("--recompute-method", "block"),
        ("--recompute-num-layers", most),
        *flags,
    ]


def check(job: Job, texts: Mapping[str, str]) -> None:
    """Raises PlannerError unless the files say what the plan does, and the job would start."""
    check_launcher(job, texts)
    found = read_arguments(texts[ARGUMENTS])
    _check_batches(job, found)
    split = list(map(int, found["--hetero-pipeline-layer-split"]))
    expect("blocks per stage", split, [len(piece.blocks) for piece in job.pieces])
    _check_start(job, found)
    _check_recomputation(job, found)


def _check_batches(job: Job, found: Mapping[str, list[str]]) -> None:
    """Layers, and the micro-batches that result from the batch of the first mesh."""
    expect("layers", found["--num-layers"], [str(job.num_blocks)])
    first = meshes(job)[0]
    micro, total = (int(found[f"--{name}-batch-size"][0]) for name in ("micro", "global"))
    expect("sequences of the first mesh", micro * first.dp, job.shape.micro_batch * job.shape.dp)
    expect("micro-batches", divmod(total, micro * first.dp), (job.micro_batches, 0))


def _check_start(job: Job, found: Mapping[str, list[str]]) -> None:
    """What the runtime asserts before the first step."""
    flat = list(map(int, found["--hetero-process-meshes"]))
    sizes = [tuple(flat[i : i + 5]) for i in range(0, len(flat), 5)]
    types = found["--hetero-device-types"]
    stages, micro_batch = job.shape.pp, int(found["--micro-batch-size"][0])
    expect("device types per mesh", len(types), len(sizes))
    planned = [str(job.shape.etp)] * len(sizes) if job.shape.etp else None
    expect("expert tensor parallelism per mesh", found.get(_EXPERT_TP), planned)
    expect("stages of all meshes", sum(size[4] for size in sizes), stages)
    expect("ranks", sum(tp * cp * dp * pp for tp, cp, _, dp, pp in sizes), job.world)
    expect("cp and ep of the meshes", {size[1:3] for size in sizes}, {(1, job.shape.ep)})
    expect("mesh batches", {sizes[0][3] * micro_batch % size[3] for size in sizes}, {0})
    unlike = len({size[0] for size in sizes}) > 1
    if job.instance.workload.tied_embeddings:
        expect("tp of the last mesh, for tied embeddings", sizes[-1][0], sizes[0][0])
    expect("sequence parallel", not unlike or "--sequence-parallel" in found, True)
    _check_places(job, sizes)
    order = [types.index(name) for name in _rank_types(job, sizes, types)]
    expect("order of the ranks by device type", order, sorted(order))
    if "--use-distributed-optimizer" in found:
        least, most = sorted((sizes[0][3], sizes[-1][3]))
        expect("first and last dp", most % least, 0)


def _check_places(job: Job, sizes: Sequence[tuple[int, ...]]) -> None:
    """Mesh by mesh, tensor fastest, then data, then stages: the places of the ranks."""
    places = [
        (tensor, data, stages + k)
        for stages, (tp, _, _, dp, pp) in zip(_sums(size[4] for size in sizes), sizes, strict=True)
        for k, data, tensor in product(range(pp), range(dp), range(tp))
    ]
    expect("places of the ranks", [one[4:] for one in job.ranks], places)


def _sums(numbers: Iterable[int]) -> list[int]:
    """What stands before each number."""
    return list(accumulate(numbers, initial=0))[:-1]


def _rank_types(job: Job, sizes: Sequence[tuple[int, ...]], types: Sequence[str]) -> list[str]:
    """Device type of every rank, by the mesh that it falls into."""
    found = [
        name
        for (tp, cp, _, dp, pp), name in zip(sizes, types, strict=True)
        for _ in range(tp * cp * dp * pp)
    ]
    held = _device_types(job)
    expect("device types of the ranks", found, [held[one.stage] for one in job.ranks])
    return found


def _check_recomputation(job: Job, found: Mapping[str, list[str]]) -> None:
    """Each stage's number of blocks, for as many micro-batches as there are."""
    rows = found.get(_PER_STAGE.format("num-layers"))
    if rows is None:
        return
    numbers = [tuple(map(int, row.strip("[]").split(","))) for row in rows]
    planned = [(1, job.micro_batches, one.blocks) for one in job.recomputed]
    expect("recomputed blocks per stage", numbers, planned)
