"""What devices with several chunks recompute: constraint (25) of `step_time`."""

from collections.abc import Sequence

import pulp

from formulations.costs.tables import CostTables
from formulations.milp.parts import Parts
from formulations.milp.terms import Literal, binary, require_equal, total_of
from formulations.recompute_rows import alike


class DeviceWays:
    """`way[d][r][w]`: device d of replica r recomputes all its blocks in way w of the shape."""

    def __init__(self, model: pulp.LpProblem, tables: CostTables, parts: Parts) -> None:
        num_ways, shape = len(tables.shape.recompute), tables.shape
        #: replicas that are alike, with the shares that they may have
        self.kinds = alike(parts.order, parts.shares, shape.dp)
        self._literals: dict[tuple[int, int], list[Literal]] = {}
        for d in range(shape.pp):
            for replicas, _ in self.kinds:
                first = replicas[0]
                own: list[Literal] = [1]
                if num_ways > 1:
                    own = [binary(model, f"way_{d}_{first}_{w}") for w in range(num_ways)]
                    require_equal(model, 25, total_of(*own), 1)
                self._literals |= {(d, r): own for r in replicas}

    def of(self, device: int, replica: int) -> Sequence[Literal]:
        """[W] of which exactly one is 1."""
        return self._literals[device, replica]
