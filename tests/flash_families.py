"""Small clusters of GPUs with and without flash attention, and each of their members by itself."""

from functools import cache
from itertools import product
from pathlib import Path
from random import Random

from formulations.instance import Instance
from formulations.instance.instance import Counts, Family
from formulations.instance.load import parse_instance
from solver.search.driver import solve

WITH, WITHOUT = ("A100-40", "A10"), ("V100-16", "T4")


def written(
    seed: int, counts: Counts = (2, 2), workload: str = "", search: str = "target: any"
) -> str:
    """An instance with so many nodes of a group with flash attention and of one without."""
    random = Random(seed)
    gpus = random.choice(WITH), random.choice(WITHOUT)
    prices = random.choice((2, 5, 8)), random.choice((1, 2, 3))
    links = [random.choice((10, 100, 400)) for _ in gpus]
    size, tokens = random.choice((1, 2)), random.choice((512, 2048))
    layers, batch = random.choice((3, 4, 6)), random.choice((4, 8, 16))
    groups = [
        f"    - {{name: {name}, gpu: {gpu}, gpus_per_node: {size}, nodes: {count},"
        f" price: {price} USD/h, inter_node: {link} Gbit/s}}"
        for name, gpu, count, price, link in zip(
            ("new", "old"), gpus, counts, prices, links, strict=True
        )
        if count
    ]
    return "\n".join(
        (
            "name: mixed",
            f"workload: {{precision: fp16, sequence_length: {tokens}, global_batch: {batch},"
            f" sizes: {{hidden_size: 1024, layers: {layers}, heads: 16, vocabulary_size: 8000,"
            f" ffn_size: 4096}}{workload}}}",
            "cluster:",
            "  groups:",
            *groups,
            f"search: {{{search}, micro_batch: [1, 2]}}",
        )
    )


def mixed(
    seed: int, counts: Counts = (2, 2), workload: str = "", search: str = "target: any"
) -> Instance:
    """The same, read."""
    return parse_instance(written(seed, counts, workload, search), "x.yaml", Path())


def mixed_family(seed: int, workload: str = "", fewest: Counts = (0, 0)) -> Family:
    """All clusters within it."""
    return Family(instance=mixed(seed, workload=workload), fewest=fewest)


@cache
def solved_alone(seed: int, workload: str = "") -> dict[Counts, int | None]:
    """Least step time on all nodes of every cluster, each read and solved by itself."""
    alone = "target: any, idle_nodes: false"
    return {
        counts: solve(mixed(seed, counts, workload, alone)).step_time_ns
        for counts in product(range(3), repeat=2)
        if any(counts)
    }
