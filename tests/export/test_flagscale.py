"""FlagScale's files, read back: each rule that would end the job at start is found broken."""

from typing import Any

import pytest

from formulations.errors import PlannerError
from formulations.plan import Degrees, Group
from solver.export import flagscale
from solver.export.job import Job
from solver.export.megatron import read_arguments
from solver.export.registry import EXPORTERS
from tests.export_cases import UNEVEN, UNTIED, WHOLE_EXPERTS, job_of, recomputing

#: Two meshes of two stages, on A100 and on A10: TP CP EP DP PP 1 1 1 2 2 each.
TWO = job_of(order=(0, 1, 1))


def in_parts(
    *degrees: Degrees, micro_batch: int = 2, search: str = "target: any", workload: str = UNTIED
) -> Job:
    """One replica of two stages, of 9 and 5 layers, in parts on the A100 node and one of A10."""
    plan: dict[str, Any] = {"pp": 2, "dp": 1, "cuts": (0, 9, 14), "shares": (8,), "order": (0, 1)}
    job = job_of(search, workload, micro_batch=micro_batch, **plan)
    (replica,) = job.plan.replicas
    stages = tuple(
        stage.but(group=Group(node=node, gpus=tuple(range(slot.width))), degrees=slot)
        for node, (stage, slot) in enumerate(zip(replica.stages, degrees, strict=True))
    )
    config = job.config.but(degrees=degrees, nodes_used=(1, 1))
    changed = job.plan.but(config=config, replicas=(replica.but(stages=stages),))
    return Job(job.instance.with_batch(8 * micro_batch), changed)


#: Tensor groups of two beside such of one: 2 1 1 2 1 1 1 1 2 1.
SLOTS = Degrees(tp=2, parts=2), Degrees(tp=1, parts=2)
UNLIKE = in_parts(*SLOTS)


@pytest.mark.parametrize(
    ("job", "old", "new", "what"),
    [
        (TWO, "--num-layers 12", "--num-layers 11", "layers"),
        (TWO, "--micro-batch-size 2", "--micro-batch-size 4", "sequences of the first mesh"),
        (TWO, "--global-batch-size 16", "--global-batch-size 18", "micro-batches"),
        (TWO, "--global-batch-size 16", "--global-batch-size 12", "micro-batches"),
        (TWO, "layer-split 3 3 2 4", "layer-split 3 3 4 2", "blocks per stage"),
        (TWO, "types A100-80 A10", "types A100-80 A10 A10", "device types per mesh"),
        (TWO, "types A100-80 A10", "types A10 A100-80", "device types of the ranks"),
        (TWO, "1 1 1 2 2 1 1 1 2 2", "1 1 1 2 2 1 1 1 2 1", "stages of all meshes"),
        (TWO, "1 1 1 2 2 1 1 1 2 2", "1 1 1 2 2 1 1 1 4 2", "ranks"),
        (TWO, "1 1 1 2 2 1 1 1 2 2", "1 1 1 2 2 1 2 1 1 2", "cp and ep of the meshes"),
        (TWO, "1 1 1 2 2 1 1 1 2 2", "1 1 1 2 2 1 1 2 2 2", "cp and ep of the meshes"),
        (TWO, "1 1 1 2 2 1 1 1 2 2", "1 1 1 2 2 2 1 1 1 2", "tp of the last mesh"),
        (UNLIKE, "2 1 1 2 1 1 1 1 2 1", "2 1 1 2 1 2 1 1 1 1", "places of the ranks"),
        (UNLIKE, "--sequence-parallel\n", "", "sequence parallel"),
        (WHOLE_EXPERTS, "process-mesh 1", "process-mesh 2", "expert tensor parallelism"),
        (recomputing(UNEVEN, (3, 1, 0, 0)), "[1,4,3]", "[1,4,2]", "recomputed blocks per stage"),
    ],
)
def test_file_that_says_anything_else_is_found(job: Job, old: str, new: str, what: str) -> None:
    """As written it is accepted; with one thing changed it is refused for that very thing."""
    texts = flagscale.files(job)
    EXPORTERS["flagscale"].check(job, texts)
    assert texts[flagscale.ARGUMENTS].count(old) == 1
    changed = {flagscale.ARGUMENTS: texts[flagscale.ARGUMENTS].replace(old, new)}
    with pytest.raises(PlannerError, match=f"^export failed: {what}.* read back as "):
        EXPORTERS["flagscale"].check(job, texts | changed)


def test_batch_that_a_mesh_does_not_divide_is_found() -> None:
    """Three ranks would share the 4 sequences that the first mesh runs at once."""
    texts = flagscale.files(TWO)
    changed = (
        texts[flagscale.ARGUMENTS]
        .replace("1 1 1 2 2 1 1 1 2 2", "1 1 1 2 2 1 1 1 3 1 1 1 1 1 1")
        .replace("types A100-80 A10", "types A100-80 A10 A10")
    )
    with pytest.raises(PlannerError, match=r"mesh batches read back as \{0, 1\}"):
        EXPORTERS["flagscale"].check(TWO, texts | {flagscale.ARGUMENTS: changed})


def test_types_that_would_move_ranks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """On A10, A100, A10 the runtime would put both A10 first, were they called so."""
    job = job_of()
    kinds = {rank.stage: rank.gpu_type for rank in job.ranks}
    monkeypatch.setattr(flagscale, "_device_types", lambda _: [kinds[k] for k in range(4)])
    with pytest.raises(PlannerError, match="order of the ranks by device type"):
        EXPORTERS["flagscale"].check(job, flagscale.files(job))


@pytest.mark.parametrize(("parts", "starts"), [(4, True), (3, False)])
def test_parts_of_the_ends_divide_with_zero_1(parts: int, starts: bool) -> None:
    """4 parts on the first stage and 2 on the last may share states, 3 and 2 may not."""
    job = in_parts(Degrees(tp=1, parts=parts), Degrees(tp=1, parts=2), micro_batch=12)
    if starts:
        EXPORTERS["flagscale"].check(job, flagscale.files(job))
    else:
        with pytest.raises(PlannerError, match="first and last dp read back as 1"):
            EXPORTERS["flagscale"].check(job, flagscale.files(job))


def arguments(job: Job) -> dict[str, list[str]]:
    """Flags of FlagScale's argument file."""
    return read_arguments(flagscale.files(job)[flagscale.ARGUMENTS])


def test_meshes_follow_the_gpu_types() -> None:
    """Two stages on A100 first, then two on A10; TP CP EP DP PP each, and blocks per stage."""
    found = arguments(job_of(order=(0, 1, 1)))
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
    found = arguments(job)
    types, meshes = found["--hetero-device-types"], found["--hetero-process-meshes"]
    assert len(types) == len(meshes) // 5
    script = flagscale.files(job)["torchrun.sh"]
    lines = script.splitlines()
    own = [line.rpartition("DEVICE_TYPE=")[2] for line in lines if "DEVICE_TYPE=" in line]
    sizes = [len(host.gpus) for host in job.hosts]
    ranks = [types.index(name) for name, n in zip(own, sizes, strict=True) for _ in range(n)]
    assert ranks == sorted(ranks)
    assert '--hetero-current-device-type "$DEVICE_TYPE"' in script


def test_tied_gradients_are_reduced_in_parts_with_zero_1() -> None:
    """As the distributed optimizer is asked for; neither without ZeRO."""
    flags = "--use-partial-reduce-for-shared-embedding", "--use-distributed-optimizer"
    for zero in (0, 1):
        told = arguments(job_of(order=(0, 1, 1), zero=zero))
        assert [flag in told for flag in flags] == [zero > 0] * 2


def test_recomputation_stage_by_stage() -> None:
    """Flag, method `block` and number of blocks, each for all four micro-batches of a stage."""
    found = arguments(recomputing(UNEVEN, (3, 1, 0, 0)))
    rows = {name: found[f"--recompute-{name}-per-stage-micro-batch"] for name in NAMES}
    assert rows == {
        "granularity": ["[1,4,1]", "[1,4,1]", "[1,4,0]", "[1,4,0]"],
        "method": ["[1,4,1]"] * 4,
        "num-layers": ["[1,4,3]", "[1,4,1]", "[1,4,0]", "[1,4,0]"],
    }
    assert found["--recompute-granularity"] == ["full"]


NAMES = ("granularity", "method", "num-layers")


def test_unlike_degrees_are_meshes() -> None:
    """Each with its tp and dp; the micro-batch of the first is half of the plan's two sequences."""
    job = UNLIKE
    assert EXPORTERS["flagscale"].faults(job) == []
    EXPORTERS["flagscale"].check(job, flagscale.files(job))
    found = arguments(job)
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
    found = arguments(WHOLE_EXPERTS)
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
    whole = in_parts(*SLOTS, search="target: any, sequence_parallel: false")
    (fault,) = EXPORTERS["flagscale"].faults(whole)
    assert "whose unlike tensor groups need sequence_parallel" in fault.found
    (tied,) = EXPORTERS["flagscale"].faults(in_parts(*SLOTS, workload="catalogue: gpt2"))
    assert "whose tied embeddings lie on tensor groups of one size" in tied.found
