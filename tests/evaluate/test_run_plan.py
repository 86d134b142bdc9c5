"""A run on machines: degrees and hosts that fit each other, and spaces that hold what is run."""

import re
from dataclasses import replace
from itertools import combinations, product

import pytest

from formulations.errors import PlanError
from formulations.instance import Instance
from solver.evaluate.evaluation import predicted
from solver.evaluate.launched import Launched, run_of_degrees
from solver.evaluate.read import read_run
from solver.evaluate.run_plan import space_of
from tests.export_cases import instance_of
from tests.refusals import refusals


@refusals("runs")
def test_refused_degrees(text: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        predicted(read_run(instance_of(), stated=text))
    assert str(caught.value) == message


def test_bug_no_size_of_micro_batches_shares_a_batch_among_these_replicas() -> None:
    """16 sequences for 3 replicas: the hosts are at fault; those that are named can share them."""
    instance = instance_of()
    with pytest.raises(PlanError, match=r"^--degrees: 16 sequences for 3 .* --order .* 2 or 1 rep"):
        read_run(instance, stated="tp=2", order="big,small")
    for order, replicas in (("small*2", 2), ("small", 1)):
        assert read_run(instance, stated="tp=2", order=order).config.dp == replicas


@pytest.mark.parametrize("batch", [1, 6, 7, 12, 16])
def test_what_evaluate_offers_for_a_batch_is_no_empty_choice(batch: int) -> None:
    """A size of micro-batches that runs, or numbers of replicas that some hosts have."""
    instance, hosts = instance_of().with_batch(batch), ("big", "small", "small")
    orders = {part for n in (1, 2, 3) for part in combinations(hosts, n)}
    gpus = {sum(4 if name == "big" else 2 for name in order) for order in orders}
    for order, pp, size in product(orders, (1, 2), (1, 2, 3)):
        degrees, named = f"pp={pp},micro_batch=", ",".join(order)
        allowed = refusal(instance, f"{degrees}{size}", named)
        if divisor := re.match(r"a divisor of (\d+): ", allowed):
            assert not refusal(instance, f"{degrees}{divisor[1]}", named)
        elif numbers := re.match(r"--order with hosts for ([\d or]+) replicas, or", allowed):
            offered = [*map(int, numbers[1].split(" or "))]
            assert all(not batch % dp and dp * pp in gpus for dp in offered)
        else:
            assert allowed in ("", f"degrees for replicas that divide {batch}")


def refusal(instance: Instance, degrees: str, order: str) -> str:
    """What is allowed instead, nothing where it is."""
    try:
        read_run(instance, stated=degrees, order=order)
    except PlanError as error:
        return error.allowed
    return ""


def test_tensor_groups_divide_the_heads() -> None:
    """Megatron-LM's num_query_groups are a multiple of tp, on nodes however large."""
    sizes = "sizes: {hidden_size: 768, layers: 12, heads: 3, vocabulary_size: 1000, ffn_size: 768}"
    instance = instance_of(f"{sizes}, sequence_length: 128")
    with pytest.raises(PlanError, match="a divisor of the 3 key and value heads"):
        read_run(instance, stated="tp=2")


def test_hosts_left_out_are_idle() -> None:
    """The order names the nodes that are used; the space then allows idle ones."""
    instance = instance_of(search="target: any, idle_nodes: false")
    own = read_run(instance, stated="pp=2,micro_batch=2", order="big")
    assert (own.config.nodes_used, own.config.dp) == ((1, 0), 2)
    assert own.space.search.idle_nodes
    assert predicted(own)[1].broken == ()


def test_space_holds_what_is_run() -> None:
    """Choices that the instance leaves out are added; the target's rules narrow the rest."""
    search = "target: any, zero: [0], schedule: [zb-h1], recompute: [none], micro_batch: [1]"
    instance = instance_of(search=search)
    text = "pp=4,vpp=3,micro_batch=2,zero=1,recompute=full"
    own = read_run(instance, stated=text)
    found = own.space.search
    assert (found.zero, found.micro_batch) == ((0, 1), (1, 2))
    assert (found.schedule, found.recompute) == (("zb-h1", "interleaved"), ("none", "full"))
    assert predicted(own)[1].broken == ()
    assert run_of_degrees(text, instance).target == "any"


def test_space_of_first_blocks_is_that_of_any_target() -> None:
    """Stages recompute on their own, or not at all; so do runs whose FSDP splits gradients."""
    instance = instance_of(search="target: megatron, recompute: [full]")
    plain = Launched("x", "megatron", 1, 2, (0, 7, 14), 2, recompute="full")
    runs = plain, replace(plain, first_blocks=2), replace(plain, pp=1, zero=2)
    every, first, sharded = (space_of(instance, run, (1, 2)).search for run in runs)
    assert (every.target, every.recompute_per, every.recompute) == ("megatron", "plan", ("full",))
    assert (first.target, first.recompute_per) == ("any", "stage")
    assert first.recompute == ("none", "full")
    assert (sharded.target, sharded.recompute_per) == ("any", "plan")
    assert (every.data_parallel, every.embedding_only_stages) == (None, False)


def test_plan_over_memory_is_told_not_refused() -> None:
    """Every GPU that holds too much, with what it may hold."""
    instance = instance_of("catalogue: gpt2-xl", "target: any")
    _, found = predicted(read_run(instance, stated="micro_batch=2"))
    assert found.broken
    assert all("memory_bytes: found" in one for one in found.broken)
