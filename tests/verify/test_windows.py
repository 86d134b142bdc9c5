"""What the verifier's windows strike out: never a way of a lane that is within the limit."""

from functools import partial
from typing import cast

import numpy as np
import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.instance.load import load_instance
from formulations.space import PlanSpace, configs
from solver.interrupt import Deadline
from solver.verify import windows
from solver.verify.bounds import Prover
from solver.verify.cascade import Claim, searched
from solver.verify.path_lengths import Remaining
from solver.verify.refutation import Refutation
from solver.verify.stages import Stages
from solver.verify.windows import by_windows, turning
from tests import brute_force
from tests.best_plans import question_of, refuted_share, refutes
from tests.chain_instances import SLOW, chain_instance, chain_tables
from tests.conftest import ROOT, present
from tests.recorded import Cases, recorded
from tests.small_instances import with_groups
from tests.verify.test_path_lengths import Lane

BOTH = ("none", "full")


@pytest.mark.parametrize(("p", "m"), [(1, 4), (2, 5), (4, 8), (5, 17)])
def test_devices_take_turns_with_1f1b_alone(p: int, m: int) -> None:
    """A single device does with every schedule."""
    assert turning("1f1b", p, m)
    assert p == 1 or not (turning("gpipe", p, m) or turning("zb-h1", p, m))


def narrow_chain(message_bytes: int) -> CostTables:
    """Blocks of 1, 3, 3, 3, 1 GFLOP on five equal GPUs, one a stage, 24 micro-batches, 1 GB/s."""
    instance = chain_instance([1, 3, 3, 3, 1], [SLOW])
    work = {"global_batch": 24, "boundary_bytes": message_bytes}
    config = chain_tables(instance).config.but(nodes_used=(5,), pp=5)
    return build_tables(with_groups(instance, nodes=5).but(workload=work), config)


def refuted(one: Refutation, below_ns: int) -> bool:
    """Whether windows show that no plan has a step time below this."""
    return one.by_windows(one.everything(below_ns), below_ns) is None


def test_a_window_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages 1 to 3 and two transfers of 3 ms each way between them take turns.

    Launches add 75 us to the 3 ms per GFLOP of every layer, so stages take 3.15, 9.075 and 3.15 ms.
    C = 27.225 + 12, N = 24 - 1 - 4 = 19, S = 12 times 19 / 18: (19 * 39.225 - 12.667) / 3 = 244.2;
    R of stage 1 = 30.375 + 18, the latency 33.525 + 24: 350.1 ms, and 0.6 for the optimizer.
    """
    tables = narrow_chain(3_000_000)
    one, best = question_of(tables), brute_force.optimum_ns(tables)
    assert best == 351_000_002
    assert not refutes(one, 327_300_000)
    assert refuted(one, 350_700_000)
    assert not refuted(one, best + 1)
    monkeypatch.setattr(windows, "MOST", 10**10)  # products beyond it: nothing is said
    assert not refuted(one, 350_700_000)


def within(lane: Lane, limit: int) -> Remaining | None:
    return by_windows(cast(Stages, lane), lane.choices, 0, limit)


def none_within(lane: Lane, limit: int) -> bool:
    return within(lane, limit) is None


@recorded("windows")
def test_no_way_of_a_lane_is_struck_out(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """Against all ways, simulated: a limit leaves every choice of those within it.

    Recorded are the choices that limits leave, and how much of the best step has none below it.
    """
    monkeypatch.setattr(windows, "NARROWEST", 100)
    for lane in filter(lambda lane: lane.ways.size, map(Lane, range(0, 12, 2))):
        step_ns, counts = lane.step_ns(), list[int]()
        for share in (0, 0.01, 0.1, 0.4):
            limit = int(np.quantile(step_ns, share, method="lower"))
            remaining = within(lane, limit)
            assert remaining is not None, lane.seed
            for way, choices in zip(lane.ways, remaining, strict=True):
                assert np.isin(way[step_ns <= limit], choices.row).all(), lane.seed
            counts.append(sum(map(len, remaining)))
        bound = refuted_share(partial(none_within, lane), int(step_ns.min()))
        yield f"lane {lane.seed}", [*counts, bound]


@pytest.mark.slow
def test_bug_a_claim_of_32_nodes_was_left_to_trying_plans() -> None:
    """Neither the windows of one class nor all links of the last stage at once close it."""
    instance = load_instance(ROOT / "bench" / "scaling" / "nodes_032.yaml")
    (config,) = (
        config
        for config in configs(instance)
        if (config.dp, config.pp, config.micro_batch, config.recompute) == (8, 32, 1, BOTH)
        and config.zero == 1
    )
    claim = Claim(0, config, below_ns=14_310_584_266)  # 0.1 % below the best plan
    prover = Prover(PlanSpace(instance)).on(config.nodes_used)
    assert present(searched(prover, claim, Deadline(None))).argument == "paths"
