"""A run on machines: degrees and hosts that fit each other, and spaces that hold what is run."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.errors import InstanceError, PlanError, PlannerError
from formulations.units import seconds
from solver.evaluate.evaluation import predicted
from solver.evaluate.launched import Launched
from solver.evaluate.run_plan import Planned, named_order, read_run, space_of
from solver.export import megatron
from solver.export.job import Job
from solver.export.registry import EXPORTERS
from solver.options import ExportTarget
from solver.simulate import step_time_ns
from tests.export_cases import JOBS, ONE_STAGE, TENSOR, UNTIED, instance_of, job_of, recomputing
from tests.recorded import Cases, digest, recorded
from tests.refusals import check_refusals, refusal, refusals


def stated(text: str) -> object:
    return predicted(read_run(instance_of(), stated=text))


test_refused_degrees = check_refusals("runs", stated)


def test_bug_no_size_of_micro_batches_shares_a_batch_among_these_replicas() -> None:
    """16 sequences for 3 replicas: the hosts are at fault; those that are named can share them."""
    instance = instance_of()
    with pytest.raises(PlanError, match=r"^--degrees: dp/pp 3/1; allowed: 1/3, for 16 sequences"):
        read_run(instance, stated="tp=2", order="big,small")
    for order, replicas in (("small*2", 2), ("small", 1)):
        assert read_run(instance, stated="tp=2", order=order).config.dp == replicas


def test_tensor_groups_divide_the_heads() -> None:
    """Megatron-LM's num_query_groups are a multiple of tp, on nodes however large."""
    sizes = "sizes: {hidden_size: 768, layers: 12, heads: 3, vocabulary_size: 1000, ffn_size: 768}"
    instance = instance_of(f"{sizes}, sequence_length: 128")
    with pytest.raises(PlanError, match="tp/cp 2/1; allowed: 1/1, for 16 sequences, 3 heads"):
        read_run(instance, stated="tp=2")


@recorded("run_plan")
def test_runs_and_their_spaces_are_the_recorded_ones() -> Cases:
    """Choices that the instance leaves out are added, hosts that are left out idle.

    Stages with first blocks recompute on their own, or not at all; FSDP splits gradients. What is
    over memory is told, not refused.
    """
    searches = "target: any, idle_nodes: false", "target: any, zero: [0], schedule: [zb-h1]"
    texts = ["pp=4,vpp=3,micro_batch=2,zero=1,recompute=full", "pp=4,vpp=3,microbatch_group=8"]
    texts += ["pp=2,micro_batch=2", "tp=2,pp=2,dp=1"]
    for workload, asked, text in product(("gpt2", "gpt2-xl"), searches, texts):
        for order in (None, "big"):
            instance = instance_of(f"catalogue: {workload}", asked)
            try:
                run = read_run(instance, stated=text, order=order)
            except PlanError as error:
                yield f"{workload} {asked} {text} {order}", str(error)
                continue
            _, evaluation = predicted(run)
            space = digest(run.space.search), digest(run.config), evaluation.objective
            yield f"{workload} {asked} {text} {order}", [*space, len(evaluation.broken)]
    instance = instance_of(search="target: megatron, recompute: [full]")
    plain = Launched("x", "megatron", 1, 2, (0, 7, 14), 2, recompute="full")
    for name, launched in {"plain": plain, "first": replace(plain, first_blocks=2)}.items():
        search = space_of(instance, launched, (1, 2)).search
        yield name, [search.target, search.recompute_per, *search.recompute]


MODES = "target: any, sequence_parallel: true, overlap: {tensor_parallel: 0.5, gradient_sync: 0.5}"
WAYS = "target: any, recompute: [none, full]"

MEGATRON = {
    "modes": job_of(MODES, **TENSOR),
    "idle host": job_of(pp=3, cuts=(0, 5, 10, 14), order=(1, 0), nodes_used=(1, 1)),
    "full": job_of(recompute=("full",)),
    "selective": job_of(recompute=("selective",)),
    "first blocks": recomputing(job_of(WAYS, recompute=("none", "full")), (3, 3, 2, 3)),
    **{
        name: JOBS[name] for name in ("uneven", "chunks", "tensor", "alone", "one_stage", "no_zero")
    },
}
TORCHTITAN = {
    "gpipe": job_of(workload=UNTIED, schedule="gpipe"),
    "zero 2": job_of(workload=UNTIED, zero=2, **ONE_STAGE),
    "zero 3": job_of(workload=UNTIED, zero=3, recompute=("full",), **ONE_STAGE),
    **{name: JOBS[name] for name in ("uneven", "chunks", "zero_bubble")},
}


def assert_is(own: Planned, job: Job) -> None:
    """The run takes as long as the job's plan, on the same GPUs, and breaks no limit."""
    document, found = predicted(own)
    assert document.step_time_s == seconds(step_time_ns(plan_costs(job.instance, job.plan)))
    assert Job(own.instance, own.plan).ranks == job.ranks
    assert found.broken == ()


@pytest.mark.parametrize(
    ("target", "job"),
    [
        *(pytest.param("megatron", job, id=name) for name, job in MEGATRON.items()),
        *(pytest.param("torchtitan", job, id=f"torchtitan {n}") for n, job in TORCHTITAN.items()),
    ],
)
def test_exported_files_are_the_plan(target: ExportTarget, job: Job, tmp_path: Path) -> None:
    assert not EXPORTERS[target].faults(job.with_own_model)
    for name, text in EXPORTERS[target].files(job).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    arguments = tmp_path / megatron.ARGUMENTS if target == "megatron" else None
    assert_is(read_run(job.instance, arguments, None if arguments else tmp_path), job)


def test_degrees_and_order_in_words_are_the_plan(tmp_path: Path) -> None:
    """The same in words, with the order of the hosts; one that is said counts beside a file."""
    text = "tp=1, pp=4, dp=2, micro_batch=2, zero=1, split=3/3/2/4"
    assert_is(read_run(instance_of(), stated=text, order="small,big,small"), job_of())
    assert named_order(instance_of(), " small*2 , big") == (1, 1, 0)
    assert read_run(instance_of(), folder(tmp_path), order="big,small,small").order == (0, 1, 1)


def test_kept_gradients_are_those_of_zero_3_between_micro_batches() -> None:
    """Of 16 sequences eight replicas have two micro-batches of one, or one of two."""
    instance, text = instance_of(), "zero={},micro_batch={},sync_each_batch=false"
    kept = [read_run(instance, stated=text.format(3, b)).config for b in (1, 2)]
    assert [config.sync_each_batch for config in kept] == [False, True]
    with pytest.raises(PlanError, match="sync_each_batch false; allowed: true, for 16 sequences"):
        read_run(instance, stated=text.format(1, 1))


def test_one_source_is_asked_for() -> None:
    for arguments, stated in ((None, None), (Path("a.txt"), "tp=1")):
        with pytest.raises(PlannerError, match="--megatron FILE, --torchtitan DIR, --degrees"):
            read_run(instance_of(), arguments, stated=stated)


test_refused_order = check_refusals("order", lambda text: named_order(instance_of(), text))


def folder(path: Path, file: str = "", old: str = "", new: str = "") -> Path:
    """An export with text replaced in one of its files; returns the argument file."""
    for name, text in megatron.files(job_of()).items():
        (path / name).write_text(text.replace(old, new, 1) if name == file else text)
    return path / megatron.ARGUMENTS


def test_bug_endless_field_of_a_rank_table(tmp_path: Path) -> None:
    path = folder(tmp_path, "ranks.csv", "A10", "x" * 200_000)
    with pytest.raises(InstanceError, match=r"ranks\.csv: field larger than .*; allowed: a table"):
        read_run(instance_of(), path)


@refusals("folders")
def test_files_that_contradict_each_other(text: str, message: str, tmp_path: Path) -> None:
    arguments = folder(tmp_path, *text.split(" # "))
    assert refusal(lambda: read_run(instance_of(), arguments)) == f"{tmp_path}/{message}"
