"""What starts the processes, whatever the framework: torchrun per host, Slurm, the rank table.

Rendezvous is static: `--node-rank` in plan order is what places the stages, and
`--rdzv-backend c10d` would ignore it. `--nproc-per-node` may differ from host to host.
"""

import csv
import io
import re
import shlex
from collections.abc import Mapping
from itertools import chain

from formulations.errors import PlannerError
from solver.export.job import Job, Rank, host_names, places_of, template, word

README, TORCHRUN, SLURM = "README.md", "torchrun.sh", "slurm.sh"
RANKS, HOSTS = "ranks.csv", "hosts.txt"

#: PyTorch multiplies fp32 matrices in fp32 unless told (its notes, "CUDA environment variables").
_TF32 = "export TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1\n"

_CASE = """\
  {host.name}|{place})  # {host.gpu_type}, ranks {host.first_rank}-{last}
    export CUDA_VISIBLE_DEVICES={gpus}{more}
    torchrun --nnodes {nnodes} --node-rank {place} --nproc-per-node {nproc} \
--master-addr "$master" --master-port "$port" {command} ;;"""

#: Patterns of a host, its GPUs, number of nodes, node rank, number of processes.
_CASE_READ = re.compile(
    r"^  (\S+)\|(\d+)\) .*\n    export CUDA_VISIBLE_DEVICES=([\d,]+).*\n    torchrun"
    r" --nnodes (\d+) --node-rank (\d+) --nproc-per-node (\d+) ",
    re.MULTILINE,
)


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
    before that. exports: further variables, per host. start: what to put for `usage`.
    """
    hosts, more = job.hosts, exports or {}
    cases = [
        _CASE.format(
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
        cases="\n".join(cases),
        names=", ".join(host.name for host in hosts),
    )
    slurm = template(SLURM).format(job=word(job.instance.name), nnodes=len(hosts), usage=usage)
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([Rank._fields, *job.ranks])
    names = "".join(f"{host.name}\n" for host in hosts)
    read_first = template(README).format(job=job, start=start or usage)
    return {
        README: read_first,
        TORCHRUN: torchrun,
        SLURM: slurm,
        HOSTS: names,
        RANKS: table.getvalue(),
    }


def check_launcher(job: Job, texts: Mapping[str, str]) -> None:
    """Raises PlannerError unless what was written starts the plan's processes, all of them."""
    rows = list(csv.reader(io.StringIO(texts[RANKS])))[1:]
    expect("ranks.csv: ranks", rows, [[*map(str, rank)] for rank in job.ranks])
    cluster = job.instance.cluster
    machines = host_names(cluster)
    names = [name for node in job.plan.node_order for name in machines[node]]
    expect("hosts.txt: hosts", texts[HOSTS].splitlines(), names)
    gpus: dict[str, set[int]] = {name: set() for name in names}
    for stage in chain.from_iterable(replica.stages for replica in job.plan.replicas):
        for name, gpu in places_of(cluster, machines, stage.group):
            gpus[name].add(gpu)
    cases = _CASE_READ.findall(texts[TORCHRUN])
    expect("torchrun.sh: number of hosts", len(cases), len(names))
    for place, name in enumerate(names):
        visible = ",".join(map(str, sorted(gpus[name])))
        planned = visible, *map(str, (len(names), place, len(gpus[name])))
        for argument in (name, str(place)):
            # bash takes the first pattern that matches
            case = next((case[2:] for case in cases if argument in case[:2]), None)
            expect(f"torchrun.sh: GPUs, nodes, rank and processes of {argument}", case, planned)


def expect(what: str, found: object, planned: object) -> None:
    """Raises PlannerError where a file, read back, does not say what the plan does."""
    if found != planned:
        raise PlannerError(f"export failed: {what} read back as {found}, the plan has {planned}")
