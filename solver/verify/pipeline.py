"""The pipeline bound of a shape: latency plus bottleneck, whatever split, order and shares.

Proof. With M micro-batches, one replica has m = ceil(M / dp) or more; look at that one, or, if all
have the same number, at any. Its p stages have f_i, b_i, t_i = f_i + b_i per micro-batch.

(1) One stage i, w = min(p - 1 - i, m - 1) in 1F1B. Micro-batch 0 goes down all stages and back up
to B_i(0); then stage i has left m - 1 backwards and the forwards that were not yet done, m - 1 - w;
then micro-batch m - 1 goes up to stage 0. Or: micro-batch 0 goes down to stage i, which does all
forwards and, before the last of them, m - 1 - w backwards; then micro-batch m - 1 goes down and
back up to stage 0. Both pass each stage once each way, and all transfers, so the last backward of
stage 0 ends no earlier than

    sum_k t_k + transfers both ways + (m - 1) t_i - w min(f_i, b_i).

In GPipe all forwards of stage i come before micro-batch m - 1 goes down to the last stage; there
B(0) follows, which goes up to stage i, whose m backwards come before B(m - 1) goes up: the same with
w = 0. Blocking sends only lengthen operations. More micro-batches than m lengthen each of the paths.

(2) After that come sync, embedding, optimizer and gather of stage 0; see `least_costs` for these
and for the transfers.

(3) Every stage lies on some node group j used: times, memory (in flight as with m) and optimizer
are those of j. A replica has at most nodes_j * visits_j stages on group j. If all replicas have the
same number of micro-batches, we may look at the one with the fewest stages on the fastest group,
which has at most a dp-th of that group's slots. The slowest group, and others if the table would
get too large, may be taken any number of times.

So T >= the minimum, over splits and groups of the stages that (3) allows, of the sum of stage costs
(latency with tail) plus the largest bottleneck term. For a cap on the terms the sum alone is a
shortest path; lowering the cap from one solution's largest term to below it meets every candidate.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from formulations.costs.memory import capacity_bytes
from formulations.plan import Shape
from formulations.schedules import in_flight
from formulations.units import ceil_div
from solver.verify.bounds import Prover, interval_sums
from solver.verify.least_costs import LeastCosts

Array = NDArray[np.int64]

#: More than any time in ns; sums of two stay within 64 bits.
NEVER = 1 << 61
#: Numbers of stages per group that a table distinguishes at most.
LARGEST_TABLE = 512


@dataclass(frozen=True)
class Path:
    """A cheapest choice of splits and groups: sum of its costs and largest of its terms."""

    total: int
    largest: int


class PipelineBound:
    """Stage costs of one shape; G groups used, n = L + 1."""

    def __init__(self, prover: Prover, shape: Shape) -> None:
        self.prover, self.shape = prover, shape
        self.least = LeastCosts(prover.instance, shape)
        total = prover.instance.workload.global_batch // shape.micro_batch
        self.micro_batches = ceil_div(total, shape.dp)
        times = prover.times(shape.tp, shape.micro_batch, shape.recompute)
        used = self.least.used
        self.forward = np.stack([interval_sums(times.forward_ns[:, j]) for j in used])
        self.backward = np.stack([interval_sums(times.backward_ns[:, j]) for j in used])
        self.work = self.forward + self.backward  # [G, n, n]
        layers, once = self.least.tail_ns()
        self.tail = np.stack([interval_sums(column) for column in layers.T])
        self.once = once + 2 * self.least.send_ns()

    @cached_property
    def caps(self) -> tuple[int, ...]:
        """Per group used: most stages of the replica on it; 0 for any number. See (3)."""
        least, shape = self.least, self.shape
        caps = [
            min(shape.pp, n * most) for n, most in zip(least.counts, least.visits, strict=True)
        ]
        speed = np.argsort(self.work[:, 0, -1], kind="stable").tolist()
        fastest = speed[0]
        if self.prover.instance.search.micro_batches == "even":
            caps[fastest] = least.counts[fastest] * least.slots[fastest] // shape.dp
        counted: list[int] = []
        for g in speed[:-1]:
            if prod(caps[one] + 1 for one in (*counted, g)) <= LARGEST_TABLE:
                counted.append(g)
        return tuple(cap if g in counted else NEVER for g, cap in enumerate(caps))
