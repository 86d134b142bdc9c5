"""What devices with several chunks recompute: constraint (25) of `step_time`."""

from collections.abc import Sequence

from ortools.sat.python import cp_model

from formulations.costs.tables import CostTables
from formulations.cpsat.parts import Parts
from formulations.cpsat.terms import Literal
from formulations.recompute_rows import alike


class DeviceWays:
    """`way[d][r][w]`: device d of replica r recomputes all its blocks in way w of the shape."""

    def __init__(self, model: cp_model.CpModel, tables: CostTables, parts: Parts) -> None:
        num_ways, shape = len(tables.shape.recompute), tables.shape
        #: replicas that are alike, with the shares that they may have
        self.kinds = alike(parts.order, parts.shares, shape.dp)
        self._literals: dict[tuple[int, int], list[Literal]] = {}
        for d in range(shape.pp):
            for replicas, _ in self.kinds:
                first = replicas[0]
                own: list[Literal] = [1]
                if num_ways > 1:
                    names = [f"way[{d}][{first}][{w}]" for w in range(num_ways)]
                    own = [model.new_bool_var(name) for name in names]
                    model.add_exactly_one(own)
                self._literals |= {(d, r): own for r in replicas}

    def of(self, device: int, replica: int) -> Sequence[Literal]:
        """[W] of which exactly one holds."""
        return self._literals[device, replica]
