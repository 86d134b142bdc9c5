"""Who sends which share of every demand of a switch: a linear programme.

Sets. Demands d of a class by the GPUs of a node, ports and links: `formulations.switching.switch`.
Parameters. S_d bytes, k_d GPUs that need them, time per byte on every port and link.
Variables. sent[d][o] >= 0, copies in bytes that owner o sends into the node; passed[d][g] >= 0,
copies that GPU g of the node forwards; time.
Objective. time.
Constraints.
(1) sum over o of sent[d][o] + sum over g of passed[d][g] = k_d S_d.
(2) sum over o of sent[d][o] >= S_d.
(3) for every port and link: time >= time of the bytes on it.
Every solution is a mixture of those in which one owner sends all copies, or sends one to a GPU that
forwards all others: the vertices of (1) and (2). So it is a plan, as classes can be divided.
Assumptions. Owners and forwarding GPUs are those of `choices`; the others are left out. Receiving
ports are not in the model: every plan puts the same bytes on them.
Size. O(choices) variables and terms, a row or two per demand, one per port and link.
"""

from collections.abc import Sequence

import pulp

from formulations.milp.terms import duration
from formulations.switching.switch import Demand, Switch

#: Owners, and GPUs that forward, between which a demand chooses.
Choices = Sequence[tuple[Demand, Sequence[int], Sequence[int]]]


class Built:
    """The programme, its variables by demand, and the ports and links of its first rows."""

    def __init__(self, switch: Switch, choices: Choices) -> None:
        self.model = pulp.LpProblem("switching")
        self._time = duration(self.model, "time")
        self.model.setObjective(pulp.LpAffineExpression(self._time))
        self.sent: list[dict[int, pulp.LpVariable]] = []
        self.passed: list[dict[int, pulp.LpVariable]] = []
        rates = [float(rate) for rate in switch.network.ns_per_byte]
        used: dict[int, list[tuple[pulp.LpVariable, float]]] = {}
        for d, (demand, owners, forwarding) in enumerate(choices):
            gpu = demand.receivers[0]
            sent = {one: duration(self.model, f"sent_{d}_{one}") for one in owners}
            passed = {one: duration(self.model, f"passed_{d}_{one}") for one in forwarding}
            for owner, variable in sent.items():
                for line in switch.path(owner, gpu):
                    if line != switch.network.receives(gpu):
                        used.setdefault(line, []).append((variable, -rates[line]))
            for one, variable in passed.items():
                used.setdefault(one, []).append((variable, -rates[one]))
            self.sent.append(sent)
            self.passed.append(passed)
        self.lines = tuple(used)
        for line, terms in used.items():  # (3)
            row = pulp.LpAffineExpression([(self._time, 1.0), *terms])
            self.model.addConstraint(row >= 0, f"n3_{line}")
        for d, (demand, _, _) in enumerate(choices):
            self._require_all(d, demand)

    def _require_all(self, d: int, demand: Demand) -> None:
        size, passed = demand.size_bytes, list(self.passed[d].values())
        sent = pulp.LpAffineExpression([(variable, 1.0) for variable in self.sent[d].values()])
        every = sent + pulp.LpAffineExpression([(variable, 1.0) for variable in passed])
        self.model.addConstraint(every == size * len(demand.receivers), f"n1_{d}")  # (1)
        if passed:
            self.model.addConstraint(sent >= size, f"n2_{d}")  # (2)
