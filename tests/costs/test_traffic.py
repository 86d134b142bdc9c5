"""What crosses links agrees with the times that costs have for it."""

from collections import defaultdict
from collections.abc import Sequence

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.costs.traffic import traffic
from formulations.instance import Instance
from formulations.instance.search import Overlap
from tests.conftest import present
from tests.costs.drawn import drawn
from tests.hand_made import results
from tests.recorded import Cases, recorded
from tests.seeds import few_and_many


@recorded("traffic")
def test_traffic_is_the_recorded_one() -> Cases:
    """Of every kind and link the bytes and seconds of all flows, of plans of every feature."""
    for name, instance, plan, _ in drawn(5, 11, 12, 23, 46):
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for n, (flow, load) in enumerate(sorted(traffic(instance, plan).items(), key=str), 1):
            places = n * (flow.stage + 3 * flow.to_stage + 7 * sum(n for n in flow.link[1:] if n))
            of_kind = sums[f"{flow.kind} {flow.link.way}"]
            for i, figure in enumerate((load.size_bytes, load.busy_s, places)):
                of_kind[i] += figure
        yield name, [[kind, *figures] for kind, figures in sorted(sums.items())]


def prompt(instance: Instance) -> Instance:
    """The instance with links without latency, and nothing hidden."""
    groups = tuple(
        group.but(intra_node={"latency_s": 0.0}, inter_node={"latency_s": 0.0})
        for group in instance.cluster.groups
    )
    search = instance.search.but(overlap=Overlap())
    return instance.but(cluster={"groups": groups}, search=search)


@pytest.mark.parametrize("seeds", few_and_many(range(30), 15))
def test_links_are_busy_for_as_long_as_costs_say(seeds: Sequence[int]) -> None:
    """Without latencies, messages and rings take what the fullest link on their way takes.

    A message waits for the slower of both ends; a ring goes inside nodes, then between them.
    """
    compared = 0
    for result in results(seeds):
        instance, plan = prompt(result.instance), present(result.plan)
        costs = plan_costs(instance, plan)
        config, micro_batches = plan.config, {replica.micro_batches for replica in plan.replicas}
        if config.zero > 1 or config.vpp > 1 or len(micro_batches) > 1 or config.has_expert_grid:
            continue
        busy_s: dict[tuple[str, int, int, bool], dict[object, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        for flow, load in traffic(instance, plan).items():
            inside = flow.link.way == "inside"
            kind = "rings" if flow.kind in ("sync", "gather") else flow.kind
            busy_s[kind, flow.stage, flow.to_stage, inside][flow.link] += load.busy_s
        longest_ns = {key: 1e9 * max(of_links.values()) for key, of_links in busy_s.items()}
        rounding = 8 * len(instance.workload.layers)
        for k in range(config.pp):
            rings_ns = sum(longest_ns.get(("rings", k, k, inside), 0) for inside in (False, True))
            stated = costs.sync_ns[k] + costs.gather_ns[k]
            assert rings_ns <= stated <= rings_ns + rounding
            compared += 1
        for k in range(config.pp - 1):
            sent = (
                max(longest_ns.get(("transfers", *ends, inside), 0) for inside in (False, True))
                for ends in ((k, k + 1), (k + 1, k))
            )
            assert max(sent) / micro_batches.copy().pop() == pytest.approx(
                costs.send_ns[k].max(), abs=2
            )
    assert compared
