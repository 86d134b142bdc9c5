"""A run on machines: degrees and hosts that fit each other, and spaces that hold what is run."""

import re
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import pytest

from formulations.errors import InstanceError, PlanError
from formulations.instance import Instance
from solver.evaluate.evaluation import predicted
from solver.evaluate.launched import Launched, run_of_degrees
from solver.evaluate.read import named_order, read_run
from solver.evaluate.run_plan import space_of
from solver.export import megatron
from tests.export_cases import instance_of, job_of


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp=3", "tensor groups of 3 GPUs; allowed: a divisor of the 4 GPUs of a node of big"),
        ("tp=2,pp=3", "3 pipeline stages; allowed: a divisor of 4: the 8 GPUs of .* groups of 2"),
        (
            "cp=2,pp=3",
            "3 pipeline stages; allowed: a divisor of 4: .* tensor x context groups of 2",
        ),
        ("pp=4,dp=3", "3 replicas; allowed: 2 on the 8 GPUs of 3 hosts .*; other hosts with"),
        ("pp=4,micro_batch=3", "micro-batches of 3; allowed: a divisor of 8: 16 sequences for 2"),
        ("pp=4,vpp=3,micro_batch=4", "3 chunks per GPU with 2 micro-batches per replica"),
        ("pp=4,micro_batch=2,zero=2", "zero.*; allowed: "),
    ],
)
def test_refused_degrees(text: str, message: str) -> None:
    """The option, what was found, what is allowed."""
    with pytest.raises(PlanError, match=f"^--degrees: .*{message}"):
        predicted(read_run(instance_of(), stated=text))


def test_bug_no_size_of_micro_batches_shares_a_batch_among_these_replicas() -> None:
    """16 sequences for 3 replicas: the hosts are at fault; those that are named can share them."""
    instance = instance_of()
    with pytest.raises(PlanError, match=r"^--degrees: 16 sequences for 3 .* --order .* 2 or 1 rep"):
        read_run(instance, stated="tp=2", order="big,small")
    for order, replicas in (("small*2", 2), ("small", 1)):
        assert read_run(instance, stated="tp=2", order=order).config.dp == replicas


@pytest.mark.parametrize("batch", range(1, 17))
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


@pytest.mark.parametrize(
    ("text", "order"),
    [("small,big,small", (1, 0, 1)), (" small*2 , big", (1, 1, 0)), ("big", (0,))],
)
def test_named_order(text: str, order: tuple[int, ...]) -> None:
    """Groups by name, several at once."""
    assert named_order(instance_of(), text) == order


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("big,huge", "the node group 'huge'; allowed: big, small"),
        ("big,big", "2 nodes of big; allowed: 1"),
        ("small*9", "9 nodes of small; allowed: 2"),
        ("", "the node group ''; allowed"),
        ("big*0", r"the node group 'big\*0'; allowed: big, small, and NAME\*N for several"),
    ],
)
def test_refused_order(text: str, message: str) -> None:
    """The option, what was found, what is allowed."""
    with pytest.raises(PlanError, match=f"^--order: {message}"):
        named_order(instance_of(), text)


def folder(path: Path, **changes: tuple[str, str]) -> Path:
    """An export with text replaced in some of its files; returns the argument file."""
    for name, text in megatron.files(job_of()).items():
        for old, new in (changes[stem] for stem in changes if name.startswith(stem)):
            text = text.replace(old, new, 1)
        (path / name).write_text(text)
    return path / megatron.ARGUMENTS


def test_bug_endless_field_of_a_rank_table(tmp_path: Path) -> None:
    """A field that is too long for a CSV reader is told in one line."""
    path = folder(tmp_path, ranks=("A10", "x" * 200_000))
    with pytest.raises(InstanceError, match=r"ranks\.csv: field larger than .*; allowed: a table"):
        read_run(instance_of(), path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hosts": ("big-0", "node7")}, r"hosts\.txt:2: the host node7; allowed: big-0, .*--order"),
        ({"hosts": ("small-0", "big-0")}, r"hosts\.txt:2: 2 nodes of big; allowed: 1"),
        ({"hosts": ("small-1\n", "")}, r"2 replicas|micro-batches|pipeline stages|ranks"),
        ({"ranks": ("\n7,", "\n9,")}, r"ranks\.csv:9: rank 9 of rank 7; allowed: 7"),
        ({"ranks": ("A10", "A100")}, r"ranks\.csv:2: gpu_type A100 of rank 0; allowed: A10"),
        (
            {"megatron_args": ("size 4", "size 2")},
            r"ranks\.csv:4: data 0 of rank 2; allowed: 2, with",
        ),
    ],
)
def test_files_that_contradict_each_other(
    changes: dict[str, tuple[str, str]], message: str, tmp_path: Path
) -> None:
    """Hosts that the instance lacks, and rank tables of other degrees or hosts."""
    path = folder(tmp_path, **changes)
    with pytest.raises(PlanError, match=message):
        read_run(instance_of(), path)


def test_order_that_is_said_counts(tmp_path: Path) -> None:
    """Hosts and ranks beside the file are another order's."""
    own = read_run(instance_of(), folder(tmp_path), order="big,small,small")
    assert own.order == (0, 1, 1)


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
    spaces = {
        name: space_of(instance, run, (1, 2)).search
        for name, run in (
            ("all", plain),
            ("first", replace(plain, first_blocks=2)),
            ("sharded", replace(plain, pp=1, zero=2)),
        )
    }
    per = {name: (search.target, search.recompute_per) for name, search in spaces.items()}
    assert per == {
        "all": ("megatron", "plan"),
        "first": ("any", "stage"),
        "sharded": ("any", "plan"),
    }
    assert spaces["all"].recompute == ("full",)
    assert spaces["first"].recompute == ("none", "full")
    assert spaces["all"].data_parallel is None
    assert spaces["all"].embedding_only_stages is False


def test_plan_over_memory_is_told_not_refused() -> None:
    """Every GPU that holds too much, with what it may hold."""
    instance = instance_of("catalogue: gpt2-xl", "target: any")
    _, found = predicted(read_run(instance, stated="micro_batch=2"))
    assert found.broken
    assert all("memory_bytes: found" in one for one in found.broken)
