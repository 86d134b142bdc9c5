"""What the verifier's windows strike out: averages of paths, by classes of what paths add."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from formulations.costs.tables import CostTables, build_tables
from formulations.instance.load import load_instance
from formulations.schedules.graph import ScheduleGraph, schedule_graph
from formulations.schedules.operations import Kind
from formulations.schedules.paths import path_counts
from formulations.space import PlanSpace, configs
from solver.verify import windows
from solver.verify.bounds import Clock, Prover
from solver.verify.cascade import Claim, searched
from solver.verify.refutation import Refutation, question_of
from solver.verify.windows import turning
from tests import brute_force
from tests.chain_instances import SLOW, chain_instance, chain_tables
from tests.random_configs import random_optimum_ns, random_tables
from tests.seeds import few_and_many

Array = NDArray[np.int64]
ROOT = Path(__file__).parents[2]
BOTH = ("none", "full")


def averaged(graph: ScheduleGraph, i: int, j: int) -> Iterator[list[int]]:
    """The paths whose average is the window of stages i to j, operation by operation."""
    down, up = graph.index[Kind.FORWARD], graph.index[Kind.BACKWARD]
    p, m, n = graph.num_stages, graph.micro_batches, j - i + 1
    turns, rest = divmod(m - 1 - (p - i), n)

    def turn(x: int, first: int, last: int) -> list[int]:
        to, after = x + p - first, x + last - first + 1
        return [*down[first : last + 1, to], *up[first : last + 1, after][::-1]]

    for start in range(n) if rest else range(1):
        run = [i + (start + a) % n for a in range(rest)]
        path, x = [*down[:, 0]], 0
        for k in reversed(range(i, p)):
            path.append(up[k, x])
            if k in run and (k == i or k - 1 not in run):  # the upper stage of a run
                length = next(a for a in range(1, n + 1) if k + a not in run or k + a > j)
                path += turn(x, k, k + length - 1)
                x += length
        for _ in range(turns):
            path += turn(x, i, j)
            x += n
        path += [*down[i:, x + p - i], *up[:, m - 1][::-1]]
        yield path


@pytest.mark.parametrize(("p", "m"), [(1, 4), (2, 5), (3, 9), (4, 8), (5, 17)])
def test_windows_are_averages_of_paths_of_1f1b(p: int, m: int) -> None:
    """Each is a path of the graph, and together they visit what the bound counts, or more."""
    graph = schedule_graph("1f1b", p, m)
    assert turning("1f1b", p, m)
    assert p == 1 or not (turning("gpipe", p, m) or turning("zb-h1", p, m))
    for i in range(max(0, p - m + 1), p):
        for j in range(i, p):
            paths = [path_counts(graph, path) for path in averaged(graph, i, j)]
            visits = np.sum([one.weights.reshape(2, p) for one in paths], axis=0)
            sends = np.sum([one.transfers[:-1].reshape(2, p - 1) for one in paths], axis=0)
            n, turns, repeated = j - i + 1, m - 1 - (p - i), len(paths)
            stage, border = np.arange(p), np.arange(p - 1)
            inside = (stage >= i) & (stage <= j)
            least = repeated * (1 + (stage >= i)) + turns * repeated // n * inside
            assert (visits == least).all()
            inside = (border >= i) & (border < j)
            least = repeated * (1 + (border >= i)) + (turns * repeated - n) // n * inside
            assert (sends >= least).all()


def narrow_chain(message_bytes: int) -> CostTables:
    """Blocks of 1, 3, 3, 3, 1 GFLOP on five equal GPUs, one a stage, 24 micro-batches, 1 GB/s."""
    instance = chain_instance([1, 3, 3, 3, 1], [SLOW])
    groups = (instance.cluster.groups[0].but(nodes=5),)
    work = {"global_batch": 24, "boundary_bytes": message_bytes}
    config = chain_tables(instance).config.but(nodes_used=(5,), pp=5)
    return build_tables(instance.but(cluster={"groups": groups}, workload=work), config)


def question(tables: CostTables) -> Refutation:
    """The question for the configuration of these tables."""
    return question_of(Prover(PlanSpace(tables.instance)), tables.config)


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
    one, best = question(tables), brute_force.optimum_ns(tables)
    assert best == 351_000_002
    assert not one.refutes(327_300_000)
    assert refuted(one, 350_700_000)
    assert not refuted(one, best + 1)
    monkeypatch.setattr(windows, "MOST", 1)  # products beyond 64 bits: nothing is said
    assert not refuted(one, 350_700_000)


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(160), 11))
def test_no_plan_is_struck_out(seeds: Sequence[int], zones: bool) -> None:
    """The best plan of a configuration with even shares stands, whatever the schedule."""
    for seed in seeds:
        tables, best = random_tables(seed, zones), random_optimum_ns(seed, zones)
        one = question(tables)
        if best is not None and one.applies and one.stages.even:
            assert not refuted(one, best + 1), seed


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
    assert searched(prover, claim, Clock(None)).argument == "paths"
