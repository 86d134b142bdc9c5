"""Piper's problem as one model: see `bench.piper_problem` for its sets and parameters.

Variables. chosen[c]: a stage, its degrees and its ways; sum[S]: what the replications of the
stages inside suffix S add up to; time.
Constraints.
(1) one stage begins at all operators, and at every other suffix as many as end there.
(2) GPUs of the chosen stages add up to at most K.
(3) sum[before] >= sum[after] + d, and <= the largest sum that the choice allows.
(4) time >= the time of every chosen stage.
Size. O(choices) literals and rows.
"""

from collections import defaultdict
from collections.abc import Sequence

from ortools.sat.python import cp_model

from bench.piper_problem import Choices, ThroughputProblem


class PiperModel:
    """The model over these choices, all or those that are of interest; `time` is minimised."""

    def __init__(self, problem: ThroughputProblem, known: Sequence[Choices]) -> None:
        self.model = model = cp_model.CpModel()
        begin: dict[int, list[cp_model.IntVar]] = defaultdict(list)
        end: dict[int, list[cp_model.IntVar]] = defaultdict(list)
        gpus: list[int] = []
        literals: list[cp_model.IntVar] = []
        largest_ps = max((int(one.time_ps[-1]) for one in known), default=0)
        self.time = model.new_int_var(0, largest_ps, "time")
        ends = {suffix for one in known for suffix in (one.before, one.after)}
        sums = {suffix: model.new_int_var(0, problem.longest, f"sum[{suffix}]") for suffix in ends}
        for one in known:
            for time_ps, longest in zip(one.time_ps, one.longest, strict=True):
                literal = model.new_bool_var("")
                begin[one.before].append(literal)
                end[one.after].append(literal)
                literals.append(literal)
                gpus.append(one.tp * one.dp)
                after, before = sums[one.after], sums[one.before]
                model.add(before >= after + one.dp).only_enforce_if(literal)  # (3)
                model.add(before <= int(longest)).only_enforce_if(literal)
                model.add(self.time >= int(time_ps) * literal)  # (4)
        model.add_exactly_one(begin[problem.everything])  # (1)
        for suffix in ends - {0, problem.everything}:
            total = cp_model.LinearExpr.sum
            model.add(total(begin[suffix]) == total(end[suffix]))
        model.add(cp_model.LinearExpr.weighted_sum(literals, gpus) <= problem.gpus)  # (2)
        model.minimize(self.time)
