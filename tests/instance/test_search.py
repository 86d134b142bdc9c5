"""What hides behind computation, by hand, and what the catalogue says of it."""

from pathlib import Path

import pytest

from formulations.costs.compute import layer_times
from formulations.costs.placement import Placer
from formulations.costs.tables import build_tables
from formulations.instance import Instance
from formulations.instance.catalogue import overlap_catalogue
from formulations.instance.load import parse_instance
from formulations.instance.search import Overlap
from formulations.plan import Configuration, Degrees
from tests.small_instances import plain_config


def instance(overlap: str) -> Instance:
    """Two nodes of two A100 for a small GPT."""
    return parse_instance(
        f"""
name: hidden
workload:
  sizes: {{hidden_size: 1024, layers: 4, heads: 8, vocabulary_size: 1024}}
  sequence_length: 1024
  global_batch: 4
cluster:
  groups: [{{name: a, gpu: A100-80, gpus_per_node: 2, nodes: 2, inter_node: Ethernet 100G}}]
search: {{overlap: {overlap}}}
""",
        "x.yaml",
        Path(),
    )


def config(pp: int, vpp: int = 1) -> Configuration:
    """Four GPUs in stages of two or four replicas."""
    schedule = "interleaved" if vpp > 1 else "1f1b"
    return plain_config((2,), dp=4 // pp, pp=pp, schedule=schedule, zero=1, vpp=vpp)


def sync_ns(one: Instance, of: Configuration) -> int:
    """Gradient sync of a block on stage 0, without its start-up."""
    return int(Placer(build_tables(one, of)).costs([0, 0]).sync_ns[0][1])


def test_hidden_tensor_traffic_leaves_the_rest() -> None:
    """Of the difference between a quarter hidden and nothing, four times is all traffic."""
    none, quarter, most = (
        int(
            layer_times(
                instance(f"{{tensor_parallel: {share}}}"), (Degrees(tp=2),), 1, "none"
            ).forward_ns[1, 0]
        )
        for share in (0.0, 0.25, 0.5)
    )
    assert none - most == pytest.approx(2 * (none - quarter), abs=2)
    traffic_s = 2 * 2 * 0.5 * (2 * 1024 * 1024 / 300e9) + 2 * 2 * 3.4e-6  # two rings over two GPUs
    assert none - quarter == pytest.approx(0.25e9 * traffic_s, abs=2)


def test_sync_hides_where_a_replica_is_one_stage() -> None:
    """Half of it on one stage, nothing on two, a chunk of two on two with two chunks each."""
    plain, half = instance("{}"), instance("{gradient_sync: 0.75}")
    assert sync_ns(half, config(1)) == pytest.approx(0.25 * sync_ns(plain, config(1)), abs=2)
    assert sync_ns(half, config(2)) == sync_ns(plain, config(2))
    interleaved = config(2, vpp=2)
    assert sync_ns(half, interleaved) == pytest.approx(0.5 * sync_ns(plain, interleaved), abs=2)


def test_nothing_is_hidden_by_default() -> None:
    """Where the instance says nothing, there is no source either."""
    assert instance("{}").search.overlap == Overlap()


def test_frameworks_have_sources() -> None:
    """Every share of the catalogue says where it is from, and that it is an assumption."""
    for name, overlap in overlap_catalogue().items():
        assert overlap.kind == "assumed", name
        assert len(overlap.source) > 40, name
    assert instance("megatron").search.overlap == overlap_catalogue()["megatron"]
