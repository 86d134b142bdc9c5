"""Stages, replicas, micro-batches and schedules that the instance allows, as `space` says."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from formulations.instance import Instance
from formulations.instance.instance import ScheduleName, SearchSpace
from formulations.schedules import SCHEDULES
from solver.verify.degree_choices import doubling

#: Tried where the instance names none.
LARGEST_MICRO_BATCH = 64


def allowed(choice: Sequence[int] | None, value: int) -> bool:
    """Whether an instance allows a value; without a choice, any."""
    return choice is None or value in choice


@dataclass(frozen=True)
class PipelineChoices:
    """How many stages, replicas, sequences of a micro-batch and chunks of a device there may be."""

    instance: Instance

    @property
    def search(self) -> SearchSpace:
        """What may be chosen."""
        return self.instance.search

    @cached_property
    def num_blocks(self) -> int:
        """Blocks of the chain."""
        return sum(run.count for run in self.instance.workload.layer_runs if run.layer.is_block)

    @cached_property
    def most_stages(self) -> int:
        """Largest number of stages that the chain fills, and that the target runs."""
        workload = self.instance.workload
        whole = workload.tied_embeddings or workload.mtp_layers > 0
        if whole and self.search.target == "torchtitan":
            return 1
        if self.search.embedding_only_stages:
            return len(self.instance.workload.layers)
        return self.num_blocks

    @cached_property
    def micro_batches(self) -> list[int]:
        """Micro-batch sizes that divide the global batch."""
        given = self.search.micro_batch
        sizes = doubling(LARGEST_MICRO_BATCH) if given is None else given
        return [b for b in sorted(set(sizes)) if self.instance.workload.global_batch % b == 0]

    def filling(self, slots: int) -> list[tuple[int, int]]:
        """Pairs (dp, pp) that fill the slots."""
        search = self.instance.search
        return [
            (slots // pp, pp)
            for pp in range(1, min(slots, self.most_stages) + 1)
            if slots % pp == 0
            and allowed(search.pipeline_parallel, pp)
            and allowed(search.data_parallel, slots // pp)
        ]

    def shares_exist(self, dp: int, micro_batch: int) -> bool:
        """Whether the micro-batches of a step can be shared among dp replicas."""
        total = self.instance.workload.global_batch // micro_batch
        return total >= dp and (self.search.micro_batches == "uneven" or total % dp == 0)

    def schedules(self, dp: int, pp: int, micro_batch: int) -> list[tuple[ScheduleName, int]]:
        """Schedules, each with its chunks per device."""
        search, total = self.search, self.instance.workload.global_batch // micro_batch
        grouped = search.micro_batches == "even" and pp > 1 and total // dp % pp == 0
        found: list[tuple[ScheduleName, int]] = []
        for schedule in sorted(set(search.schedule)):
            if not SCHEDULES[schedule].interleaves:
                found.append((schedule, 1))
            elif grouped:
                chunks = sorted(set(search.virtual_pipeline))
                found += [(schedule, v) for v in chunks if pp * v <= self.most_stages]
        return found
