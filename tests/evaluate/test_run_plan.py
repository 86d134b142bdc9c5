"""A run on machines: degrees and hosts that fit each other, and spaces that hold what is run."""

from dataclasses import replace
from itertools import product

import pytest

from formulations.errors import PlanError
from solver.evaluate.evaluation import predicted
from solver.evaluate.launched import Launched
from solver.evaluate.read import read_run
from solver.evaluate.run_plan import space_of
from tests.export_cases import instance_of
from tests.recorded import Cases, digest, recorded
from tests.refusals import check_refusals


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
