"""Small instances, written as users write them, whose plan spaces use every choice of `search`."""

import random
from collections.abc import Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, get_args

import yaml

from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.instance.search import ScheduleName
from formulations.instance.targets import TARGETS, Target
from formulations.plan import Configuration, Degrees
from formulations.space import configs

_LINK = {"bandwidth": "10 Gbit/s", "latency": "10 us"}


def _choice(rng: random.Random, values: list[Any]) -> list[Any]:
    return rng.sample(values, rng.randint(1, len(values)))


def _groups(rng: random.Random) -> list[dict[str, Any]]:
    """One to three groups of few nodes, some of equal machines, every fourth cluster in zones."""
    zones = rng.random() < 0.25
    groups: list[dict[str, Any]] = []
    for name in "abc"[: rng.choice([1, 2, 2, 3])]:
        copied = groups and rng.random() < 0.4
        machine = {
            "gpu": rng.choice(["A100-40", "L40S", "V100-16"]),
            "gpus_per_node": rng.choice([1, 2, 3, 4, 4, 6]),
            "price": f"{rng.randint(1, 4)} USD/h",
            "inter_node": _LINK,
        }
        group = dict(groups[-1]) if copied else machine
        groups.append(group | {"name": name, "nodes": rng.randint(1, 2)})
        if zones:
            groups[-1]["zone"] = rng.choice("xy")
    return groups


def _search(rng: random.Random, target: Target, experts: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "degrees": rng.choice(["uniform", "per_group", "per_group", "per_stage"]),
        "tensor_parallel": _choice(rng, [1, 2, 3, 4]),
        "data_parallel": _choice(rng, [1, 2, 3, 4]),
        "pipeline_parallel": _choice(rng, [1, 2, 3]),
        "micro_batch": _choice(rng, [1, 2, 3, 4, 6, 12]),
        "context_parallel": _choice(rng, [1, 2]),
        "context_method": rng.choice(["ring", "all_to_all"]),
        "schedule": _choice(rng, ["1f1b", "gpipe", "interleaved", "zb-h1"]),
        "recompute": _choice(rng, ["none", "selective", "full"]),
        "recompute_per": rng.choice(["plan", "stage"]),
        "zero": _choice(rng, [0, 1, 2, 3]),
        "micro_batches": "uneven",
        "idle_nodes": False,
        "embedding_only_stages": True,
        "sequence_parallel": rng.choice([True, False]),
    }
    if experts:
        fields["expert_parallel"] = _choice(rng, [1, 2, 3, 4, 6])
        fields["expert_tensor_parallel"] = _choice(rng, [1, "tp"])
    kept = {
        name: value
        for name, value in fields.items()
        if rng.random() < (0.6 if name == "degrees" else 0.3)
        and all(
            TARGETS[target].allows(name, one)
            for one in (value if isinstance(value, list) else [value])
        )
    }
    if "interleaved" in kept.get("schedule", ()):
        kept["virtual_pipeline"] = _choice(rng, [2, 3])
        if target != "torchtitan":
            kept["microbatch_group"] = _choice(rng, ["pp", 2, 3, 4, 5])
    return kept | {"target": target}


def written_instance(seed: int, target: Target) -> str:
    rng = random.Random(seed)
    experts = rng.random() < 0.4
    sizes: dict[str, Any] = {
        "hidden_size": 192,
        "layers": rng.randint(1, 5),
        "heads": 12,
        "kv_heads": rng.choice([4, 6, 12]),
        "vocabulary_size": 500,
        "rotary_positions": True,
        "tied_embeddings": rng.random() < 0.3,
    }
    if experts:
        moe = {"experts": 12, "experts_per_token": 2, "ffn_size": 64}
        sizes["moe"] = moe | ({"biases": True} if rng.random() < 0.2 else {})
    groups = _groups(rng)
    cluster: dict[str, Any] = {"groups": groups}
    if len({group.get("zone") for group in groups}) > 1:
        cluster["zone_link"] = _LINK
    written: dict[str, Any] = {
        "name": f"space_{seed}",
        "workload": {
            "sizes": sizes,
            "sequence_length": rng.choice([96, 128, 192]),
            "global_batch": rng.choice([1, 4, 6, 12, 24]),
            "precision": rng.choice(["bf16", "bf16", "fp16"]),
        },
        "cluster": cluster,
        "search": _search(rng, target, experts),
    }
    grouping = random.Random(-seed)
    if target != "flagscale" and 0 not in written["search"].get("zero", [0]):
        written["search"]["optimizer_instances"] = _choice(grouping, [1, 2, 3])
    if target == "any" and 3 in written["search"].get("zero", [3]):
        written["search"]["sync_each_batch"] = _choice(grouping, [True, False])
    if rng.random() < 0.15:
        written["limits"] = {"max_price_per_hour": f"{rng.randint(1, 6)} USD/h"}
    return yaml.safe_dump(written)


@cache
def random_space(seed: int, target: Target) -> Instance:
    """An instance that is not refused, with a configuration at least."""
    for number in count(1000 * seed):
        try:
            instance = parse_instance(written_instance(number, target), f"space_{number}", Path())
        except InstanceError:
            continue
        if any(True for _ in configs(instance)):
            return instance
    raise AssertionError("no instance")


def spread(instance: Instance, most: int) -> list[Configuration]:
    """About so many of its configurations at most, from all over the plan space."""
    space = list(configs(instance))
    return space[:: 1 + len(space) // most]


def perturbed(
    rng: random.Random, config: Configuration, donors: Sequence[Configuration]
) -> Configuration:
    """The configuration with one to three fields of another one, or with any values."""
    changes: dict[str, Any] = {}
    for field in rng.sample(list(Configuration.model_fields), rng.randint(1, 3)):
        changes[field] = getattr(rng.choice(donors), field)
        if rng.random() < 0.3:
            changes[field] = _any_value(rng, field, config)
    return config.but(**changes)


def _any_value(rng: random.Random, field: str, config: Configuration) -> Any:
    """Of a field, whether the configuration goes with it or not."""
    if field == "nodes_used":
        return tuple(rng.randint(0, 2) for _ in config.nodes_used)
    if field == "degrees":
        sizes = [(1, 2, 3, 4), (1, 2, 3), (1, 1, 2)]
        drawn = ([rng.choice(one) for one in sizes] for _ in config.nodes_used)
        return tuple(Degrees(tp=tp, parts=parts, cp=cp) for tp, parts, cp in drawn)
    values: dict[str, list[Any]] = {
        "schedule": list(get_args(ScheduleName)),
        "recompute": [("none",), ("none", "full"), ("full",), ("full", "none")],
        "zero": [0, 1, 2, 3],
        "sync_each_batch": [True, False],
        "etp": [None, 1],
        "microbatch_group": [None, 2, 3, 4, 5],
    }
    return rng.choice(values.get(field, [1, 2, 3, 4, 6, 12]))
