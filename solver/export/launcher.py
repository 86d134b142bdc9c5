"""What starts the processes, whatever the framework: torchrun per host, Slurm, the rank table.

Rendezvous is static: `--node-rank` in plan order is what places the stages, and
`--rdzv-backend c10d` would ignore it. `--nproc-per-node` may differ from host to host.
"""

import csv
import io
import shlex
from collections.abc import Mapping

from solver.export.job import Job, Rank, template, word

README, TORCHRUN, SLURM = "README.md", "torchrun.sh", "slurm.sh"
RANKS, HOSTS = "ranks.csv", "hosts.txt"

#: PyTorch multiplies fp32 matrices in fp32 unless told (its notes, "CUDA environment variables").
_TF32 = "export TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1\n"

_CASE = """\
  {host.name}|{place})  # {host.gpu_type}, ranks {host.first_rank}-{last}
    export CUDA_VISIBLE_DEVICES={gpus}{more}
    torchrun --nnodes {nnodes} --node-rank {place} --nproc-per-node {nproc} \
--master-addr "$master" --master-port "$port" {command} ;;"""


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
    user_model = job if start else job.with_own_model
    read_first = template(README).format(job=user_model, start=start or usage)
    return {
        README: read_first,
        TORCHRUN: torchrun,
        SLURM: slurm,
        HOSTS: names,
        RANKS: table.getvalue(),
    }
