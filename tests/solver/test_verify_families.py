"""Path families that the verifier builds, against the graph and against their formulas."""

import numpy as np
import pytest
from numpy.typing import NDArray

from formulations.instance.instance import ScheduleName
from formulations.schedules import SCHEDULES, schedule_graph
from solver.simulate import Times, simulate
from solver.verify.families import Member, families, members_of

Array = NDArray[np.int64]

SIZES = [(p, m) for p in (1, 2, 3, 5) for m in (1, 2, 4, 7, 12)]


def length(
    member: Member,
    k: int,
    forward: Array,
    backward: Array,
    weight: Array,
    send: Array,
) -> int:
    """Of a member for stage k of stages with these times; send[k]: from stage k to the next."""
    through = forward + backward
    own = member.own[0] * forward[k] + member.own[1] * backward[k] + member.own[2] * weight[k]
    above = forward[:k].sum() + send[:k].sum()
    if member.back:
        above += backward[:k].sum() + send[:k].sum() + (member.rest * weight[0] if k else 0)
    return int(own + above + member.beyond * (through[k + 1 :].sum() + 2 * send[k:].sum()))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1"])
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_no_member_is_longer_than_the_simulated_step(
    schedule: ScheduleName, p: int, m: int
) -> None:
    """Random stages with transfers: the last operation of the first or the own stage is later."""
    rng = np.random.default_rng(p * 100 + m)
    forward, backward, weight = rng.integers(1, 50, (3, p, 1))
    send = rng.integers(0, 30, (p - 1, 1))
    splits = SCHEDULES[schedule].splits_backward
    graph = schedule_graph(schedule, p, m)
    end = simulate(graph, Times(forward, backward, send, weight=weight if splits else None))
    last = end[graph.last, 0]
    for k, members in enumerate(families(schedule, p, m)):
        assert members
        for member in members:
            found = length(member, k, *(one[:, 0] for one in (forward, backward, weight, send)))
            assert found <= last[0 if member.back else k]


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_formulas_are_what_the_graph_has(schedule: ScheduleName, p: int, m: int) -> None:
    """Members for many m at once are covered by those that are built for this m, and cover them."""
    for k, members in enumerate(families(schedule, p, m)):
        formulas = [
            Member(
                (int(np.max(one.own[0])), int(np.max(one.own[1])), 0),
                one.back,
                int(np.max(one.beyond)),
            )
            for one in members_of(schedule, p, k, np.array([m]))
        ]
        known = [one for one in formulas if any(one.own) and (one.back or k)]
        assert all(any(other.covers(one) for other in members) for one in known)
        assert all(any(other.covers(one) for other in known) for one in members)


def test_equal_stages_of_1f1b_by_hand() -> None:
    """Stage 1 of 4, m 8: 6 forwards, 8 backwards, one way beyond; 2 turns leave 4 pairs."""
    members = families("1f1b", 4, 8)[1]
    assert Member((6, 8, 0), back=True, beyond=1) in members
    assert Member((4, 4, 0), back=True, beyond=3) in members
    assert Member((8, 8, 0), back=False, beyond=0) in members


@pytest.mark.parametrize("p", [1, 2, 4, 7])
def test_members_of_zb_h1_are_paths_that_grow(p: int) -> None:
    """Of unlike shares too: each is covered by one of the graph, and is no shorter with more."""
    numbers = np.arange(1, 16)
    for k in range(p):
        members = members_of("zb-h1", p, k, numbers)
        assert all((np.diff(np.asarray(own)) >= 0).all() for one in members for own in one.own)
        for m in numbers.tolist():
            known = families("zb-h1", p, m)[k]
            for one in members:
                forward, backward, weight = (int(np.asarray(own)[m - 1]) for own in one.own)
                own = Member((forward, backward, weight), one.back, one.beyond)
                assert any(other.covers(own) for other in known) or not (one.back or k)
