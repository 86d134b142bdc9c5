"""What exported files start, by readers of their own, held against the plan.

Those of torchtitan `evaluate` reads: tests/space/test_launchable.py makes plans of them again.
"""

import ast
import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, product
from math import prod
from typing import Any, NamedTuple

from solver.export.flagscale import ONE_TYPE
from solver.export.job import Job, host_names, places_of
from solver.export.megatron import parsed
from solver.options import ExportTarget

#: A host of torchrun.sh: its names, its GPUs, number of hosts, its place, number of processes.
CASE = re.compile(
    r"^  (\S+)\|(\d+)\) .*\n    export CUDA_VISIBLE_DEVICES=([\d,]+).*\n    torchrun"
    r" --nnodes (\d+) --node-rank (\d+) --nproc-per-node (\d+) ",
    re.MULTILINE,
)
Place = tuple[int, int, int]  #: in its tensor group, among those with its weights, stage


class Read(NamedTuple):
    """places: by rank. ends: layers before the end of each virtual stage. sequences: of a step."""

    places: Sequence[Place]
    ends: Sequence[int]
    micro_batches: int
    sequences: int


def grid(tp: int, dp: int, pp: int, first: int = 0) -> list[Place]:
    """Places of ranks: tensor groups fastest, then data, then stages."""
    return [(t, d, first + k) for k, d, t in product(range(pp), range(dp), range(tp))]


def settings(text: str) -> dict[str, Any]:
    """What a module assigns, by the last part of the name, where it is written out."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign):
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                continue
            found[ast.unparse(node.targets[0]).rpartition(".")[2]] = value
    return found


def arguments(text: str) -> dict[str, list[str]]:
    """Options by name, without dashes."""
    lines = (line.split() for line in text.splitlines() if line[0] != "#")
    return {words[0][2:].replace("-", "_"): words[1:] for words in lines}


PARALLEL = "tensor_model_parallel", "pipeline_model_parallel", "context_parallel"


def of_megatron(options: Mapping[str, Any], job: Job) -> Read:
    """Megatron-LM's options, as numbers and text."""
    tp, pp, cp = (int(options[f"{name}_size"]) for name in PARALLEL)
    dp, blocks = job.world // (tp * pp * cp) * cp, int(options["num_layers"])
    micro, total = (int(options[f"{name}_batch_size"]) for name in ("micro", "global"))
    layout = options.get("pipeline_model_parallel_layout") or f"E{'t' * blocks}L"
    pieces = parsed(layout, pp, blocks, layout.count("m"))
    ends = [*accumulate(len(piece) - piece.count("m") for piece in pieces)]
    copies, rest = divmod(total, micro * dp // cp)
    assert rest == 0
    return Read(grid(tp, dp, pp), ends, copies, total)


def megatron(texts: Mapping[str, str], job: Job) -> Read:
    options = arguments(texts["megatron_args.txt"])
    return of_megatron({name: values[0] for name, values in options.items() if values}, job)


def megatron_bridge(texts: Mapping[str, str], job: Job) -> Read:
    fields = settings(texts["planned_recipe.py"])
    assert fields["microbatch_group_size_per_vp_stage"] == job.config.microbatch_group
    return of_megatron(fields | {"num_layers": fields["LAYERS"]}, job)


def flagscale(texts: Mapping[str, str], job: Job) -> Read:
    """And what the runtime asserts before the first step."""
    told = arguments(texts["flagscale_args.txt"])
    flat = list(map(int, told["hetero_process_meshes"]))
    meshes = [flat[i : i + 5] for i in range(0, len(flat), 5)]
    micro, total = (int(told[f"{name}_batch_size"][0]) for name in ("micro", "global"))
    split = list(map(int, told["hetero_pipeline_layer_split"]))
    types, first, last = told["hetero_device_types"], meshes[0], meshes[-1]
    copies, rest = divmod(total, micro * first[3])
    assert len(types) == len(meshes)
    assert rest == 0 == max(first[3] * micro % mesh[3] for mesh in meshes)
    assert {tuple(mesh[1:3]) for mesh in meshes} == {(1, job.config.ep)}
    if job.instance.workload.tied_embeddings:
        assert first[0] == last[0]
    assert len({mesh[0] for mesh in meshes}) == 1 or "sequence_parallel" in told
    if "use_distributed_optimizer" in told:
        assert max(first[3], last[3]) % min(first[3], last[3]) == 0

    # device types are in the order of the ranks, each once, and are those of the GPUs
    before = accumulate((mesh[4] for mesh in meshes), initial=0)
    places, kinds = list[Place](), list[str]()
    for (tp, _, _, dp, pp), kind, stage in zip(meshes, types, before, strict=False):
        places += grid(tp, dp, pp, stage)
        kinds += [kind] * tp * dp * pp
    order = [types.index(kind) for kind in kinds]
    assert order == sorted(order)
    gpus = [rank.gpu_type for rank in job.ranks]
    assert kinds in (gpus, [ONE_TYPE] * len(gpus))

    # each stage recomputes so many blocks, of as many micro-batches as there are
    rows = told.get("recompute_num_layers_per_stage_micro_batch")
    if rows is not None:
        recomputed = [[1, copies, stage.recomputed.blocks] for stage in job.plan.replicas[0].stages]
        assert list(map(json.loads, rows)) == recomputed
    split[0] += 1  # the embedding
    split[-1] += 1  # the head
    return Read(places, [*accumulate(split)], copies, total)


def deepspeed(texts: Mapping[str, str], job: Job) -> Read:
    told = json.loads(texts["ds_config.json"])
    micro, copies = told["train_micro_batch_size_per_gpu"], told["gradient_accumulation_steps"]
    total = told.get("train_batch_size", job.instance.workload.global_batch)
    tp = told.get("tensor_parallel", {"autotp_size": 1})
    parts, pp, dp = [0, job.num_blocks + 2], 1, total // (micro * copies)
    if "planned_pipeline.py" in texts:
        module = settings(texts["planned_pipeline.py"])
        parts, pp, dp = module["PARTS"], module["STAGES"], module["REPLICAS"]
    return Read(grid(tp["autotp_size"], dp, pp), parts[1:], copies, micro * copies * dp)


def accelerate(texts: Mapping[str, str], job: Job) -> Read:
    told = settings(texts["planned_accelerator.py"])
    copies, sizes = told["ACCUMULATION"]["num_steps"], told["SIZES"] or {}
    dp = told["PROCESSES"] // sizes.get("tp_size", 1)
    assert prod(sizes.values()) in (1, told["PROCESSES"])
    assert told["MICRO_BATCH"] * copies * dp == told["GLOBAL_BATCH"]
    places = grid(sizes.get("tp_size", 1), dp, 1)
    return Read(places, [told["BLOCKS"] + 2], copies, told["GLOBAL_BATCH"])


READERS = {
    "megatron": megatron,
    "megatron-bridge": megatron_bridge,
    "flagscale": flagscale,
    "deepspeed": deepspeed,
    "accelerate": accelerate,
}


def planned(job: Job) -> Iterator[tuple[str, int, Place]]:
    """Of every rank its host, its GPU there, and its place."""
    hosts = host_names(job.instance.cluster)
    for k in range(job.config.pp):
        for r, replica in enumerate(job.plan.replicas):
            stage = replica.stages[k]
            for i, (host, gpu) in enumerate(places_of(job.instance.cluster, hosts, stage.group)):
                share, tensor = divmod(i, stage.degrees.tp)
                yield host, gpu, (tensor, share + r * stage.degrees.copies, k)


def check_files(target: ExportTarget, job: Job, texts: Mapping[str, str]) -> None:
    """Asserts that files start the plan's processes, with its layers and batches, on its GPUs."""
    plan, replica = [*planned(job)], job.plan.replicas[0]
    ends, total = [stage.layers[1] for stage in replica.stages], job.instance.workload.global_batch
    if target in READERS:
        places = [place for *_, place in plan]
        assert READERS[target](texts, job) == Read(places, ends, replica.micro_batches, total)

    # every host is started by its name or its place, with the GPUs of its ranks
    hosts, cases = texts["hosts.txt"].splitlines(), CASE.findall(texts["torchrun.sh"])
    started = list[tuple[str, int]]()
    assert len(set(hosts)) == len(hosts)
    for place, (case, host) in enumerate(zip(cases, hosts, strict=True)):
        gpus = case[2].split(",")
        assert case == (host, f"{place}", case[2], f"{len(hosts)}", f"{place}", f"{len(gpus)}")
        started += [(host, int(gpu)) for gpu in gpus]
    assert started == [(host, gpu) for host, gpu, _ in plan]
    rows = [row[:3] + row[4:] for row in csv.reader(texts["ranks.csv"].splitlines())][1:]
    assert rows == [[*map(str, (i, host, gpu, *at))] for i, (host, gpu, at) in enumerate(plan)]
