"""What replicas with unlike numbers of micro-batches bring over even batches.

    python -m bench shares [INSTANCE ...] [--time-limit S] [--workers N] [--out RECORDS]

Each instance is solved twice by the exact search, with `search.micro_batches` even and uneven;
everything else is equal, so the uneven optimum is never slower. Two steps, an even plan whose batch
is spread anew, would stay with the even plan wherever its replicas are alike. Records go to
bench/results/shares.jsonl.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from rich.table import Table

from bench.command import Column, command, config_of, figure_table, search_options, wide_console
from bench.gap import instance_files, measure
from bench.records import append, record
from bench.searches import Figures, apart
from formulations.instance import Instance
from formulations.instance.load import load_instance
from solver.options import SolveOptions

Shares = Literal["even", "uneven"]
#: Mixed instances on which at least one of the two is proved within a minute.
DEFAULT = ("hetero_small", "hetero_large", "three_types", "oobleck_mixed")


def with_shares(instance: Instance, shares: Shares) -> Instance:
    """The instance with these numbers of micro-batches per replica allowed."""
    return instance.but(search={"micro_batches": shares})


def compare(name: str, instance: Instance, options: SolveOptions) -> list[Figures]:
    """One record for even and one for uneven micro-batches, in this order."""
    return [
        record("shares", {"instance": name, "micro_batches": shares})
        | apart(measure, with_shares(instance, shares), "exact", options)
        for shares in get_args(Shares)
    ]


def shorter(even: Figures, uneven: Figures) -> float | None:
    """By what part the uneven step is shorter, relative to the even one."""
    if even["step_time_ns"] is None or uneven["step_time_ns"] is None:
        return None
    return float(1 - uneven["step_time_ns"] / even["step_time_ns"])


def table(records: Sequence[Figures]) -> Table:
    """One line per instance and kind of shares; the saving on the second."""
    columns: dict[str, Column] = {
        "instance": "instance",
        "micro-batches": "micro_batches",
        "tensor x data x pipeline, micro-batch": config_of,
        "status": "status",
        "step ms": ("step_time_ns", 1e-6, 3),
        "bound ms": ("bound", 1e-6, 3),
        "shorter %": ("shorter", 100, 2),
        "seconds": ("runtime_s", 1, 2),
    }
    pairs = zip(records[::2], records[1::2], strict=True)
    rows = [row for a, b in pairs for row in (a, b | {"shorter": shorter(a, b)})]
    return figure_table(rows, columns)


def main() -> None:
    """Runs the benchmark; records are stored after every instance."""
    parser = command("shares", time_limit=60.0, workers=2)
    parser.add_argument("instance", nargs="*", default=DEFAULT, help="file, or name in instances/")
    chosen = parser.parse_args()
    options = search_options(chosen)
    found: list[Figures] = []
    for path in instance_files(chosen.instance):
        found += compare(path.stem, load_instance(path), options)
        append(chosen.out, found[-2:])
    console = wide_console()
    console.print(table(found))
