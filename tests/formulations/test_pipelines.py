"""Pipelines side by side, by hand."""

from formulations.pipelines import Instantiation, InstantiationProblem, PipelineKind

#: Two nodes of the first group, or one of each: steps and exchanges of 1, 2, .. pipelines.
PAIR = PipelineKind((2, 0), (10, 20, 20, 40), (0, 6, 8))
MIXED = PipelineKind((1, 1), (15, 25))
PROBLEM = InstantiationProblem((PAIR, MIXED), (5, 2), faults=1, micro_batches=6)


def test_what_a_kind_can_do() -> None:
    """In 20 three micro-batches, in 9 none; two pipelines exchange for 6, of MIXED for nothing."""
    assert [PAIR.capacity(step) for step in (9, 10, 20, 39, 40)] == [0, 1, 3, 3, 4]
    assert (PAIR.exchange_ns(1), PAIR.exchange_ns(2), MIXED.exchange_ns(2)) == (0, 6, 0)


def test_limits_of_a_problem() -> None:
    """Two pairs of 5 nodes, two mixed ones by the second group; 7 nodes are three pipelines."""
    assert (PROBLEM.most(0), PROBLEM.most(1), PROBLEM.most_pipelines) == (2, 2, 3)
    assert (PROBLEM.earliest_ns, PROBLEM.latest_ns, PROBLEM.has_exchange) == (10, 40, True)
    few = InstantiationProblem((PAIR, MIXED), (5, 2), faults=0, micro_batches=1)
    assert (few.most(0), few.most_pipelines) == (1, 1)
    larger = InstantiationProblem((PAIR, PipelineKind((3, 0), (1,))), (5, 2), 0, 6)
    assert larger.most_pipelines == 3  # of 7 nodes two each
    assert not InstantiationProblem((MIXED,), (5, 2), 0, 6).has_exchange


def test_step_of_pipelines_and_their_exchange() -> None:
    """Shares 3 and 1 on pairs, 2 on the mixed one: 25, then the exchange of three, 8."""
    chosen = Instantiation.of(2, (0, 1, 0), (1, 2, 3))
    assert chosen == Instantiation(((3, 1), (2,)))
    assert chosen.counts == (2, 1)
    assert PROBLEM.slowest_exchange_ns(chosen.counts) == 8
    assert chosen.step_ns(PROBLEM) == 25 + 8
    assert Instantiation(((), (2, 2))).step_ns(PROBLEM) == 25
