"""FlagScale's files, read back: each rule that would end the job at start is found broken."""

from typing import Any

import pytest

from formulations.errors import PlannerError
from formulations.plan import Degrees, Group
from solver.export import flagscale
from solver.export.job import Job
from solver.export.registry import EXPORTERS
from tests.export_cases import UNEVEN, UNTIED, WHOLE_EXPERTS, job_of, recomputing

#: Two meshes of two stages, on A100 and on A10: TP CP EP DP PP 1 1 1 2 2 each.
TWO = job_of(order=(0, 1, 1))


def in_parts(*degrees: Degrees, micro_batch: int = 2) -> Job:
    """One replica of two stages, of 9 and 5 layers, in parts on the A100 node and one of A10."""
    plan: dict[str, Any] = {"pp": 2, "dp": 1, "cuts": (0, 9, 14), "shares": (8,), "order": (0, 1)}
    job = job_of(workload=UNTIED, micro_batch=micro_batch, **plan)
    (replica,) = job.plan.replicas
    stages = tuple(
        stage.but(group=Group(node=node, gpus=tuple(range(slot.width))), degrees=slot)
        for node, (stage, slot) in enumerate(zip(replica.stages, degrees, strict=True))
    )
    shape = job.shape.but(degrees=degrees, nodes_used=(1, 1))
    changed = job.plan.but(shape=shape, replicas=(replica.but(stages=stages),))
    return Job(job.instance.with_batch(8 * micro_batch), changed)


#: Tensor groups of two beside such of one: 2 1 1 2 1 1 1 1 2 1.
UNLIKE = in_parts(Degrees(tp=2, parts=2), Degrees(tp=1, parts=2))


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
