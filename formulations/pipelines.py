"""Pipelines to run side by side: what may be started, what was chosen, and what it takes.

Oobleck (Jang et al., SOSP 2023, section 4.2) starts pipelines from templates and shares the
micro-batches of a step among them. Here both decisions belong to one problem, and pipelines of one
template may have different shares.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class PipelineKind:
    """What pipelines of one template are worth.

    nodes: how many of each node group. times_ns[m - 1]: step of one pipeline with m micro-batches,
    nondecreasing in m; it ends with the most micro-batches that such a pipeline may have.
    exchanges_ns[x - 1]: what the exchange of gradients among x pipelines takes on its nodes, up to
    as many as the cluster may run; none for no time at all.
    """

    nodes: tuple[int, ...]
    times_ns: Sequence[int]
    exchanges_ns: Sequence[int] = ()

    def exchange_ns(self, pipelines: int) -> int:
        """Time of the exchange among so many pipelines."""
        return self.exchanges_ns[pipelines - 1] if self.exchanges_ns else 0

    def capacity(self, step_ns: int) -> int:
        """Most micro-batches of a step of `step_ns`; 0 if not even one."""
        return bisect_right(self.times_ns, step_ns)


@dataclass(frozen=True)
class InstantiationProblem:
    """Choose pipelines and their micro-batches so that the step is shortest.

    The step is that of the slowest pipeline and then the slowest exchange of gradients.

    available: nodes per group. faults: at least `faults` + 1 pipelines. micro_batches: of a step,
    at least one for every pipeline. all_nodes: every node must belong to a pipeline.
    """

    kinds: tuple[PipelineKind, ...]
    available: tuple[int, ...]
    faults: int
    micro_batches: int
    all_nodes: bool = True

    def most(self, kind: int) -> int:
        """Most pipelines of one kind that the nodes, and the micro-batches, allow."""
        needed = self.kinds[kind].nodes
        fitting = [have // n for have, n in zip(self.available, needed, strict=True) if n]
        return min(self.micro_batches, *fitting)

    @cached_property
    def latest_ns(self) -> int:
        """No pipeline takes longer, whatever the shares."""
        return max((kind.times_ns[-1] for kind in self.kinds if kind.times_ns), default=0)

    @cached_property
    def most_pipelines(self) -> int:
        """No choice has more."""
        return min(
            self.micro_batches, sum(self.available) // min(sum(kind.nodes) for kind in self.kinds)
        )

    @property
    def has_exchange(self) -> bool:
        """Whether the exchange of gradients takes time."""
        return any(kind.exchanges_ns for kind in self.kinds)

    def slowest_exchange_ns(self, counts: Sequence[int]) -> int:
        """Time of the exchange among so many pipelines per kind; 0 without any."""
        pairs = zip(self.kinds, counts, strict=True)
        return max((kind.exchange_ns(sum(counts)) for kind, count in pairs if count), default=0)

    @property
    def earliest_ns(self) -> int:
        """No pipeline takes less."""
        return min((kind.times_ns[0] for kind in self.kinds if kind.times_ns), default=0)


@dataclass(frozen=True)
class Instantiation:
    """shares[i]: micro-batches of every pipeline of kind i, descending; one entry a pipeline."""

    shares: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, num_kinds: int, kinds: Sequence[int], shares: Sequence[int]) -> "Instantiation":
        """Pipelines by their kinds, with their shares."""
        by_kind: list[list[int]] = [[] for _ in range(num_kinds)]
        for i, share in zip(kinds, shares, strict=True):
            by_kind[i].append(share)
        return cls(tuple(tuple(sorted(each, reverse=True)) for each in by_kind))

    @property
    def counts(self) -> tuple[int, ...]:
        """Pipelines of every kind."""
        return tuple(map(len, self.shares))

    def step_ns(self, problem: InstantiationProblem) -> int:
        """Step of the slowest pipeline, and the exchange."""
        pairs = zip(problem.kinds, self.shares, strict=True)
        slowest = max(kind.times_ns[shares[0] - 1] for kind, shares in pairs if shares)
        return slowest + problem.slowest_exchange_ns(self.counts)
