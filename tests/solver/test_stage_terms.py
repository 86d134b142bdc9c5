"""What stages add to the latency: never more than the simulated step says."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from formulations.costs.intervals import interval_sums
from formulations.instance.instance import ScheduleName
from solver.layered.problem import Array
from solver.templates.judge import Stages, simulated
from solver.templates.places import Places
from solver.templates.stage_terms import StageTerms
from solver.templates.template_options import Split
from tests.template_cases import random_places


def _drawn(places: Places, p: int, random: Random) -> Stages:
    """A template of p stages, one layer each, on places and nodes at random."""
    own = [random.randrange(len(places.gpus)) for _ in range(p)]
    crosses = [random.randint(0, 1) for _ in range(p - 1)]
    columns = [own, list(range(p)), list(range(1, p + 1))]
    place, start, end = (np.array(column)[:, None] for column in columns)
    return Stages(place, start, end, np.array(crosses, dtype=np.int64).reshape(-1, 1))


def _bound(places: Places, stages: Stages, m: int) -> int:
    """Latency and the most that is added, by (1) or by rounds."""
    terms, p = StageTerms(places, m), len(stages.place)
    ahead, back = (
        [0, *table[stages.crosses[:, 0], stages.place[:-1, 0], stages.place[1:, 0]].tolist()]
        for table in (places.send, places.send_back)
    )
    layers = stages.place[:, 0], stages.start[:, 0], stages.end[:, 0]
    busy = (places.forward + places.backward)[layers]
    onward = np.cumsum((busy + ahead + back)[::-1])[::-1]
    none: Array = np.zeros(1, dtype=np.int64)
    steady, slow, most = none, none, 0
    for k, (place, start, end) in enumerate(zip(*layers, strict=True)):
        after = p - 1 - k
        work, longer = terms.device(place, start[None], end[None], back[k], np.array(after))
        transfers = np.array([ahead[k] + back[k]])
        again = terms.visited_again(work, transfers, after) if k else none
        steady, slow, added = terms.extended(after, (work, longer, again), steady, slow)
        rest = onward[k : k + 1] - transfers
        rounds = terms.by_rounds(work, rest, after)
        most = max(most, int(added[0]), int(rounds[0]))
    return int(onward[0]) + most


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("seed", range(8))
def test_step_is_never_below_what_stages_add(seed: int, schedule: ScheduleName) -> None:
    """Up to 9 stages and 14 micro-batches; transfers from none to long, also blocking."""
    random, tight = Random(seed), 0
    for _ in range(60):
        p, m, scale = random.randint(1, 9), random.randint(1, 14), random.choice((0, 1, 6))
        drawn = random_places(random.randrange(10**6), p, (2,), (1,), Split.ANY, 12)
        places = replace(
            drawn,
            schedule=schedule,
            blocking=bool(random.randint(0, 1)),
            finish=np.zeros_like(drawn.finish),
            tied=False,
            send=drawn.send * scale,
            send_back=drawn.send_back * scale,
        )
        stages = _drawn(places, p, random)
        step, bound = int(simulated(places, stages, m)[0]), _bound(places, stages, m)
        assert bound <= step
        tight += bound == step
    assert tight >= 10


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        # Latency 20. Stage 1, one stage after it: 2 pairs of 7, then a backward of 6 at stage 0.
        # Alone stage 0 adds 1 x 7 + 2 x 6 = 19, stage 1 2 x 7 + 5 = 19, stage 2 3 x 6 = 18.
        ((1, 5, 5), (6, 2, 1), 20 + 2 * 7 + 6),
        # Latency 22. Stage 1 has 2 pairs of 8; after them stage 2 once more: 16 + 7 = 23.
        # Alone stage 0 adds 7 + 2 x 6 = 19, stage 1 2 x 8 + 6 = 22, stage 2 3 x 7 = 21.
        ((1, 2, 1), (6, 6, 6), 22 + 2 * 8 + 7),
    ],
)
def test_stages_that_add_more_together_than_alone(
    forward: tuple[int, ...], backward: tuple[int, ...], expected: int
) -> None:
    """Three stages, 4 micro-batches, no transfers: the bound is the step."""
    drawn = random_places(0, 3, (1,), (3,), Split.ANY)
    none, zero = np.zeros_like(drawn.send), np.zeros_like(drawn.finish)
    places = replace(
        drawn,
        forward=interval_sums(np.array([forward])),
        backward=interval_sums(np.array([backward])),
        finish=zero,
        send=none,
        send_back=none,
    )
    stage = np.arange(3)[:, None]
    stages = Stages(0 * stage, stage, stage + 1, np.ones((2, 1), dtype=np.int64))
    assert _bound(places, stages, 4) == expected
    assert simulated(places, stages, 4)[0] == expected
