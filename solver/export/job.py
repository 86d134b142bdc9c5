"""What every launch target needs of a plan: hosts, ranks, pieces of the model; scripts to start it.

Ranks are Megatron-LM's: rank = t + tp (d + dp k) for GPU t of the tensor group that runs stage k on
the d-th share of the batch, where those that share sequences are neighbours (Narayanan et al., SC
2021), laid over the hosts in node order, which may have unlike numbers of GPUs. torchtitan and
DeepSpeed count the same way, FlagScale in a mesh.

torchrun starts the processes of a host, Slurm all hosts. Rendezvous is static: `--node-rank` in
plan order is what places the stages, and `--rdzv-backend c10d` would ignore it. `--nproc-per-node`
may differ from host to host.
"""

import ast
import csv
import io
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from formulations.instance import Cluster, Instance
from formulations.instance.workload import Recompute
from formulations.plan import Configuration, Degrees, Group, Plan, Recomputed
from solver.files import beside

Place = tuple[str, int]  #: host, index of a GPU there


def word(name: str) -> str:
    """A name as one word that no shell reads anything into."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "plan"


def host_names(cluster: Cluster) -> tuple[tuple[str, ...], ...]:
    """The machines of all nodes, by names that no shell reads anything into; one unless joined.

    In the order of `Cluster.node_names`. Never numbers, and unique unless `name_clash` says
    otherwise.
    """
    return tuple(
        tuple(f"{word(group.name)}-{i}" for i in range(first, first + group.machines))
        for group in cluster.groups
        for first in range(0, group.nodes * group.machines, group.machines)
    )


def places_of(cluster: Cluster, hosts: Sequence[Sequence[str]], slot: Group) -> list[Place]:
    """Host, and index there, of every GPU of a slot; hosts: those of `host_names`."""
    size = cluster.groups[cluster.node_groups[slot.node]].gpus_per_machine
    return [(hosts[slot.node][gpu // size], gpu % size) for gpu in slot.gpus]


#: How the names of node groups have to be.
APART = "names that differ in ASCII letters, digits, '.', '_' or '-'"


def name_clash(cluster: Cluster) -> str | None:
    """Two node groups whose nodes have the same host names; None where there are none."""
    groups: dict[str, str] = {}
    for group in cluster.groups:
        first = groups.setdefault(word(group.name), group.name)
        if first != group.name:
            return f"the node groups {first} and {group.name}, whose hosts are named alike"
    return None


class Rank(NamedTuple):
    """One process: where it runs, and what."""

    rank: int
    host: str
    gpu: int  #: index on its host
    gpu_type: str
    tensor: int  #: place in its tensor-parallel group
    data: int  #: place among those that hold the same weights
    stage: int  #: pipeline stage, whatever its chunks


class Host(NamedTuple):
    """One machine: its place in node order is its node rank."""

    name: str
    gpu_type: str
    gpus: tuple[int, ...]  #: that have a process
    first_rank: int


class Piece(NamedTuple):
    """Layers of one virtual stage; blocks are counted from 0 along the chain."""

    embedding: bool
    blocks: range
    head: bool


@dataclass(frozen=True)
class Job:
    """A plan as launchers see it."""

    instance: Instance
    plan: Plan

    @property
    def with_own_model(self) -> "Job":
        """The job whose model is the user's: nothing of it is written."""
        return replace(self, instance=self.instance.but(workload={"sizes": None}))

    @property
    def config(self) -> Configuration:
        """Degrees and strategies."""
        return self.plan.config

    @property
    def title(self) -> str:
        """What the plan is for."""
        return f"a plan for {word(self.instance.workload.name)} on {self.world} GPUs"

    @property
    def world(self) -> int:
        """Number of processes."""
        return len(self.ranks)

    def degrees(self, stage: int) -> Degrees:
        """How a pipeline stage is shared."""
        return self.plan.replicas[0].stages[stage].degrees

    @property
    def tp(self) -> int:
        """Of the first stage; of all where degrees are uniform."""
        return self.degrees(0).tp

    @property
    def micro_batches(self) -> int:
        """Per replica and step, where all run equally many."""
        return self.plan.replicas[0].micro_batches

    @property
    def num_blocks(self) -> int:
        """Blocks of the chain."""
        return self.instance.workload.num_blocks

    @property
    def sequence_parallel(self) -> bool:
        """Whether tensor groups split the sequence between their products."""
        several = [tp for k in range(self.config.pp) if (tp := self.degrees(k).tp) > 1]
        return bool(several) and all(map(self.instance.splits_sequence, several))

    @cached_property
    def ranks(self) -> tuple[Rank, ...]:
        """All processes in rank order."""
        cluster, places = self.instance.cluster, list[tuple[str, int, str, int, int, int]]()
        hosts = host_names(cluster)
        for k in range(self.config.pp):
            degrees = self.degrees(k)
            for r, replica in enumerate(self.plan.replicas):
                group = replica.stages[k].group
                gpu_type = word(cluster.groups[cluster.node_groups[group.node]].gpu.name)
                for i, (host, index) in enumerate(places_of(cluster, hosts, group)):
                    share, tensor = divmod(i, degrees.tp)
                    share += r * degrees.copies
                    places.append((host, index, gpu_type, tensor, share, k))
        return tuple(Rank(rank, *place) for rank, place in enumerate(places))

    @cached_property
    def hosts(self) -> tuple[Host, ...]:
        """Machines in node order."""
        groups = (list(ranks) for _, ranks in groupby(self.ranks, key=lambda rank: rank.host))
        return tuple(
            Host(ranks[0].host, ranks[0].gpu_type, tuple(rank.gpu for rank in ranks), ranks[0].rank)
            for ranks in groups
        )

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """Of the virtual stages, in the order of the layers."""
        last = len(self.instance.workload.layers) - 1
        return tuple(
            Piece(
                embedding=start == 0,
                blocks=range(max(start, 1) - 1, min(end, last) - 1),
                head=end == last + 1,
            )
            for start, end in (stage.layers for stage in self.plan.replicas[0].stages)
        )

    @property
    def recomputed(self) -> list[Recomputed]:
        """What each virtual stage of the first replica recomputes."""
        return [stage.recomputed for stage in self.plan.replicas[0].stages]

    @property
    def yours(self) -> str:
        """What files leave to the user, and whether they start all the same, in sentences."""
        sizes = self.instance.workload.sizes
        if sizes is None:
            return "Yours: data, optimizer and the model."
        names = ["activation", "norm_epsilon", *["rotary_base"] * sizes.rotary_positions]
        unknown = [name for name in names if getattr(sizes, name) is None]
        of_model = f", and of the model {', '.join(unknown)}" * bool(unknown)
        return f"Yours: data and optimizer{of_model}. As it stands, the job trains on mock data."

    @property
    def recompute_way(self) -> Recompute:
        """What all stages recompute, where they are alike."""
        pairs = zip(self.recomputed, self.pieces, strict=True)
        return next((recomputed.way for recomputed, piece in pairs if piece.blocks), "none")


#: For the shell: programs started from there find the modules of this folder.
IMPORTABLE = 'export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"'


def template(file: str) -> str:
    """The text of an exported file, in which braces stand for what a plan decides."""
    return beside("solver.export", f"templates/{file}.txt")


def table_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as the text of a CSV file."""
    page = io.StringIO()
    csv.writer(page, lineterminator="\n").writerows(rows)
    return page.getvalue()


def assignments(text: str) -> Iterator[tuple[str, ast.expr, int]]:
    """What a module assigns: name, expression, line; fields of `cfg` and `config` without these."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
            name = name.removeprefix("cfg.").removeprefix("config.")
            yield name, node.value, node.lineno


# What starts the processes: torchrun per host, Slurm, the rank table

README, TORCHRUN, SLURM = "README.md", "torchrun.sh", "slurm.sh"
RANKS, HOSTS = "ranks.csv", "hosts.txt"

#: PyTorch multiplies fp32 matrices in fp32 unless told (its notes, "CUDA environment variables").
_TF32 = "export TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1\n"


def launcher_files(
    job: Job,
    usage: str,
    command: str,
    setup: str = "",
    exports: Mapping[str, Mapping[str, str]] | None = None,
    start: str = "",
) -> dict[str, str]:
    """Scripts, host list, rank table, and what to read first.

    usage: what follows the host on the command line. command: what torchrun runs. setup: lines
    before that. exports: further variables, per host. start: what to put for `usage`,
    where the model is written.
    """
    hosts, more = job.hosts, exports or {}
    cases = [
        template("torchrun_host.sh").format(
            host=host,
            place=place,
            last=host.first_rank + len(host.gpus) - 1,
            gpus=",".join(map(str, host.gpus)),
            more="".join(f" {n}={shlex.quote(v)}" for n, v in more.get(host.name, {}).items()),
            nnodes=len(hosts),
            nproc=len(host.gpus),
            command=command,
        )
        for place, host in enumerate(hosts)
    ]
    torchrun = template(TORCHRUN).format(
        usage=usage,
        master=hosts[0].name,
        setup=_TF32 * (job.instance.workload.precision == "tf32") + setup,
        cases="".join(cases).rstrip("\n"),
        names=", ".join(host.name for host in hosts),
    )
    slurm = template(SLURM).format(job=word(job.instance.name), nnodes=len(hosts), usage=usage)
    user_model = job if start else job.with_own_model
    return {
        README: template(README).format(job=user_model, start=start or usage),
        TORCHRUN: torchrun,
        SLURM: slurm,
        HOSTS: "".join(f"{host.name}\n" for host in hosts),
        RANKS: table_text([Rank._fields, *job.ranks]),
    }
