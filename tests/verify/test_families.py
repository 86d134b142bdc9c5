"""Path families that the verifier builds, against the graph and against their formulas."""

import numpy as np
import pytest
from numpy.typing import NDArray

from formulations.instance.search import ScheduleName
from formulations.schedules import SCHEDULES, schedule_graph
from solver.simulate import Times, simulate
from solver.verify.families import Member, Visits, families, members_of, of_one_chunk

Array = NDArray[np.int64]

SIZES = [(p, m) for p in (1, 2, 3, 5) for m in (1, 2, 4, 7, 12)]


def length(member: Member, k: int, times: Array) -> int:
    """Of a member for device k; times: [6, v, p] of `Costs` of every virtual stage."""

    def visited(visits: Visits) -> Array:
        return np.asarray(np.einsum("cx,xcp->p", np.array(visits), times[[0, 1, 3]]))

    own = (np.array(member.own).reshape(6, -1) * times[:, :, k]).sum()
    before, after = visited(member.before)[:k].sum(), visited(member.after)[k + 1 :].sum()
    return int(own + before + member.beyond * after + member.rest * times[2, 0, 0])


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "interleaved"])
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_no_member_is_longer_than_the_simulated_step(
    schedule: ScheduleName, p: int, m: int, blocking: bool
) -> None:
    """Random stages with transfers: the last operation of the first or the own device is later."""
    rng, one = np.random.default_rng(p * 100 + m), SCHEDULES[schedule]
    v, m = (2 + m % 2, p * m) if one.interleaves else (1, m)
    forward, backward, weight = rng.integers(1, 50, (3, p * v, 1))
    send = rng.integers(0, 30, (p * v - 1, 1))
    graph, weight = schedule_graph(schedule, p, m, v), weight * one.splits_backward
    late = weight if one.splits_backward else None
    end = simulate(graph, Times(forward, backward, send, weight=late, blocking=blocking))
    last = end[graph.last, 0]
    into, onward = np.concatenate([[[0]], send]), np.concatenate([send, [[0]]])
    known = [forward, backward, weight, into, onward * blocking, into * blocking]
    times = np.array(known).reshape(6, v, p)
    for k, members in enumerate(families(schedule, p, m, v)):
        assert members
        for member in members:
            assert length(member, k, times) <= last[0 if member.back else k]


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_formulas_are_what_the_graph_has(schedule: ScheduleName, p: int, m: int) -> None:
    """Members for many m at once are covered by those that are built for this m, and cover them."""
    for k, members in enumerate(families(schedule, p, m)):
        formulas = [
            of_one_chunk(
                (int(np.max(one.own[0])), int(np.max(one.own[1])), 0),
                one.back,
                int(np.max(one.beyond)),
            )
            for one in members_of(schedule, p, k, np.array([m]))
        ]
        known = [one for one in formulas if any(one.own[:3]) and (one.back or k)]
        assert all(any(other.covers(one) for other in members) for one in known)
        assert all(any(other.covers(one) for other in known) for one in members)


def test_equal_stages_of_1f1b_by_hand() -> None:
    """Stage 1 of 4, m 8: 6 forwards, 8 backwards, one way beyond; 2 turns leave 4 pairs."""
    members = families("1f1b", 4, 8)[1]
    assert of_one_chunk((6, 8, 0), back=True, beyond=1) in members
    assert of_one_chunk((4, 4, 0), back=True, beyond=3) in members
    assert of_one_chunk((8, 8, 0), back=False, beyond=0) in members


@pytest.mark.parametrize("p", [1, 2, 4, 7])
def test_members_of_zb_h1_are_paths_that_grow(p: int) -> None:
    """Of unlike shares too: each is covered by one of the graph, and is no shorter with more."""
    numbers = np.arange(1, 16)
    for k in range(p):
        members = members_of("zb-h1", p, k, numbers)
        assert all((np.diff(np.asarray(own)) >= 0).all() for one in members for own in one.own[:3])
        for m in numbers.tolist():
            known = families("zb-h1", p, m)[k]
            for one in members:
                forward, backward, weight = (int(np.asarray(own)[m - 1]) for own in one.own[:3])
                own = of_one_chunk((forward, backward, weight), one.back, one.beyond)
                assert any(other.covers(own) for other in known) or not (one.back or k)
