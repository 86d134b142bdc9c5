"""What crosses a boundary between stages, where that depends on the layer before it."""

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import Decisions
from formulations.instance import Instance, Workload
from formulations.instance.transformer import TransformerSizes, build_workload
from solver.layered.messages import longest
from solver.layered.problem import Intervals
from solver.search.engines import model_engine
from solver.search.enumeration import enumerate_shape
from tests import brute_force
from tests.equal_nodes import equal_nodes
from tests.loop_checks import solve_shape
from tests.random_shapes import random_tables

#: Layers 0 embedding, 1-2 encoder, 3-4 decoder, 5 head.
SMALL = TransformerSizes(
    hidden_size=512,
    layers=2,
    decoder_layers=2,
    heads=8,
    ffn_size=2048,
    vocabulary_size=1024,
)


@pytest.fixture
def encoder_decoder() -> Instance:
    """Three nodes of one GPU; sequences of 500 tokens, so a tensor is 2 x 500 x 512 bytes."""
    tables = equal_nodes(3, 1, 1, 1, 3)
    workload = build_workload(
        SMALL, name="t5", source="test", sequence_length=500, global_batch=4, precision="bf16"
    )
    return tables.instance.but(workload=workload)


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [
        # 512,000 bytes over 1 GB/s are 512 us, and 10 us of latency; twice that is 1,024 us.
        ([0, 1, 2, 6], [522_000, 522_000]),  # behind the embedding, and the first encoder block
        ([0, 2, 3, 6], [522_000, 522_000]),  # the encoder's output alone goes to the decoder
        ([0, 3, 4, 6], [522_000, 1_034_000]),  # from then on it travels with the decoder's
        ([0, 4, 5, 6], [1_034_000, 1_034_000]),
    ],
)
def test_bug_encoder_boundaries_are_charged_one_tensor(
    encoder_decoder: Instance, cuts: list[int], expected: list[int]
) -> None:
    """Two were charged everywhere; Megatron-LM sends two behind decoder blocks alone."""
    shape = equal_nodes(3, 1, 1, 1, 3).shape
    plan = Decisions((0, 0, 0), tuple(cuts), (4,)).plan(build_tables(encoder_decoder, shape))
    assert plan_costs(encoder_decoder, plan).send_ns.ravel().tolist() == expected


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("seed", [10, 46, 74])
def test_cut_that_decides_its_message_is_chosen_exactly(seed: int, zones: bool) -> None:
    """Enumeration, CP-SAT and MILP find the best of all plans, faster than two tensors allow."""
    tables = random_tables(seed, zones)
    best = brute_force.optimum_ns(tables)
    assert best is not None
    slower = brute_force.optimum_ns(of_two_tensors(tables))
    assert slower is not None
    assert best < slower
    assert enumerate_shape(Intervals(tables), 1 << 56, 0.0, lambda: False).step_time_ns == best
    for method in ("cpsat", "milp"):
        found = solve_shape(tables, model_engine(method))
        assert found.step_time_ns == found.bound_ns == best


def of_two_tensors(tables: CostTables) -> CostTables:
    """The same shape where two tensors cross every boundary."""
    workload = tables.instance.workload
    runs = tuple(run.but(layer={"output_tensors": 2}) for run in workload.layer_runs)
    twice = Workload.model_validate(workload.model_dump() | {"layer_runs": runs})
    return build_tables(tables.instance.but(workload=twice), tables.shape)


def test_messages_are_compared_kind_by_kind() -> None:
    """A link may be slower for one tensor, by its latency, and faster for two."""
    assert longest((5, 9), (4, 10)) == (5, 10)
