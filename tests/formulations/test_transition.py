"""What moves between fleets, and how long it takes."""

import random

from formulations.fleet import Pipeline, Template, holdings, stage_on
from formulations.transition import Copy, Links, layer_state_bytes, missing
from tests.random_configs import zoned
from tests.recorded import Cases, recorded
from tests.small_instances import random_instance, with_groups


def template(*stages: tuple[int, int, int]) -> Template:
    """Stages (first layer, end, node) on one GPU each, nodes of group 0."""
    made, used = [], dict[int, int]()
    for start, end, node in stages:
        first = used.get(node, 0)
        made.append(stage_on(layers=(start, end), node=node, first_gpu=first, gpus=1))
        used[node] = first + 1
    return Template(node_groups=(0,) * len(used), stages=tuple(made))


TWO = template((0, 2, 0), (2, 3, 0), (3, 5, 1))  #: layers 0-2 and 3-4
THREE = template((0, 2, 0), (2, 3, 1), (3, 5, 2))  #: layers 0-1, 2, 3-4


def test_missing_are_the_layers_not_held_yet() -> None:
    """From THREE to TWO: node 0 gains layer 2, node 1 goes from layer 2 to 3 and 4; 9 is new."""
    held = holdings([Pipeline(THREE, (0, 1, 2), 1)])
    assert list(missing(held, [Pipeline(TWO, (0, 1), 1)])) == [(0, 2), (1, 3), (1, 4)]
    assert len(list(missing(held, [Pipeline(TWO, (9, 2), 1)]))) == 3


@recorded("transition")
def test_times_are_the_recorded_ones() -> Cases:
    """States of layers, loads of links without zones and with, of copies from a checkpoint too."""
    for seed in range(8):
        instance = zoned(random_instance(seed), seed) if seed % 2 else random_instance(seed)
        late = [{"latency_s": 1e-5 * j} for j, _ in enumerate(instance.cluster.groups, 1)]
        instance = with_groups(instance, inter_node=late)
        nodes, links = len(instance.cluster.node_names), Links(instance.cluster)
        sizes = layer_state_bytes(instance.workload)
        rng = random.Random(seed)
        ends = [(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(6)]
        copies = [Copy(rng.randrange(len(sizes)), a, b) for a, b in ends if a != b]
        copies.append(Copy(0, None, nodes - 1))
        loads = sorted(map(str, links.loads_ns(copies, sizes).items()))
        yield f"{seed}", [list(sizes), loads, links.transfer_ns(copies, sizes)]
    assert links.transfer_ns([], sizes) == 0
