"""A second analytic model as witness: GPT-3 175B on 1,024 A100 as Calculon prices it, and as we do.

    python -m bench calculon [--out RECORDS] [--pictures FOLDER]

Every configuration that a plan of ours expresses stands beside Calculon's step
time and memory, which `calculon_terms` takes apart; with Calculon's figures of the machine and with
those of our catalogue. `calculon_study` searches the same plans, and more, for the best.

Plans lie in the space of `bench/calculon/*.yaml`: blocks split evenly, embedding and head with the
first and last, ZeRO 1; `rs_ag` is sequence parallelism, `attn_only` selective recomputation. The
overlap of a file counts where a row has it. Gathering again what sequence parallelism splits is
hidden behind products here, as in Korthikanti et al. 2023: rows with and without it are one plan.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from bench.calculon_terms import Calculon
from bench.command import command, new_table, wide_console
from bench.records import RESULTS, append, json_of, record, reference
from bench.runs import Row, even_plan
from bench.scatter import Point, scatter_picture
from formulations.costs.memory import MemoryParts
from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import Array, build_tables
from formulations.instance import Instance
from formulations.instance.load import load_instance
from formulations.instance.workload import Recompute
from formulations.plan import Configuration, Plan, uniform_degrees
from formulations.schedules.registry import sizes_of_groups
from formulations.units import GIB, NANOSECONDS_PER_SECOND
from solver.simulate import step_time_ns

WAYS: dict[str, Recompute] = {"none": "none", "attn_only": "selective", "full": "full"}


def why_not(row: Row) -> str | None:
    """What of a row no plan of ours has."""
    micro_batches = row["global_batch"] // (row["dp"] * row["micro_batch"])
    if row["virtual_pipeline"] > 1 and micro_batches < row["pp"]:
        return "interleaved, fewer micro-batches than stages"
    return None


def group_of(row: Row) -> int | None:
    """The smallest group of micro-batches that Megatron-LM takes; None: as many as stages.

    Calculon counts the bubble alone, which is the same for all of them.
    """
    micro_batches = row["global_batch"] // (row["dp"] * row["micro_batch"])
    sizes = range(row["pp"], micro_batches + 1) if row["virtual_pipeline"] > 1 else ()
    return next(iter(sizes_of_groups(row["pp"], micro_batches, sizes)), None)


def planned(base: Instance, row: Row) -> tuple[Instance, Plan]:
    """A row as an instance with its overlap, and its plan."""
    overlap = base.search.overlap
    shares = {
        "tensor_parallel": overlap.tensor_parallel if row["tp_overlap"] == "ring" else 0.0,
        "gradient_sync": overlap.gradient_sync if row["dp_overlap"] else 0.0,
    }
    changed = {
        "sequence_parallel": row["tp_comm"] == "rs_ag",
        "overlap": overlap.model_copy(update=shares),
    }
    instance = base.but(search=changed)
    chunks = row["virtual_pipeline"]
    config = Configuration(
        degrees=uniform_degrees(base, row["tp"]),
        dp=row["dp"],
        pp=row["pp"],
        micro_batch=row["micro_batch"],
        schedule="interleaved" if chunks > 1 else "1f1b",
        recompute=(WAYS[row["recompute"]],),
        zero=1,
        nodes_used=(base.cluster.groups[0].nodes,),
        vpp=chunks,
        microbatch_group=group_of(row),
    )
    return instance, even_plan(instance, config)


def _layers_ns(instance: Instance, config: Configuration) -> Array:
    """[L] of a micro-batch, forward and backward."""
    tables = build_tables(instance, config)
    return tables.work_ns[:, 0]


def _work_ns(instance: Instance, config: Configuration) -> dict[str, Array]:
    """[L] of a micro-batch by kind."""
    search = instance.search.but(overlap={"tensor_parallel": 1.0})
    plain = config.but(recompute=("none",))
    all_ns, plain_ns = _layers_ns(instance, config), _layers_ns(instance, plain)
    bare_ns = _layers_ns(instance.but(search=search), plain)
    is_block = np.array([layer.is_block for layer in instance.workload.layers])
    return {
        "compute": bare_ns * is_block,
        "recomputation": all_ns - plain_ns,
        "tensor-parallel traffic": plain_ns - bare_ns,
        "embedding and head": bare_ns * ~is_block,
    }


def times_s(instance: Instance, plan: Plan) -> dict[str, float]:
    """Seconds of the step by kind, as Calculon's, on the device with most work.

    pipeline: all else, bubbles and transfers.
    """
    config, replica, costs = plan.config, plan.replicas[0], plan_costs(instance, plan)
    work_ns = (costs.forward_ns + costs.backward_ns)[:, 0].reshape(config.vpp, config.pp)
    device = int(work_ns.sum(axis=0).argmax())
    own = [layer for stage in replica.stages[device :: config.pp] for layer in range(*stage.layers)]
    found = {
        kind: replica.micro_batches * int(layers_ns[own].sum())
        for kind, layers_ns in _work_ns(instance, config).items()
    }
    sync_ns = costs.sync_ns[device] + costs.gather_ns[device] + costs.embedding_ns
    found |= {"gradient sync": int(sync_ns), "optimizer": int(costs.optimizer_ns[device])}
    found["pipeline"] = step_time_ns(costs) - sum(found.values())
    return {kind: ns / NANOSECONDS_PER_SECOND for kind, ns in found.items()}


def memory_bytes(instance: Instance, plan: Plan) -> dict[str, float]:
    """Bytes of the fullest GPU by kind; buffers of messages count as activations."""
    rows = plan_costs(instance, plan).memory[:, :, 0].T.tolist()
    fullest = MemoryParts(*max(rows, key=sum))
    return {
        "weights": fullest.weights_bytes,
        "gradients": fullest.gradients_bytes,
        "optimizer": fullest.optimizer_bytes,
        "activations": fullest.activations_bytes + fullest.buffers_bytes,
    }


Figures = dict[str, Any]

FILE = "calculon/gpt3_175b_1024.json"
FOLDER = Path(__file__).parent / "calculon"
UNITS = {"s": 1.0, "bytes": GIB}
MACHINES = {"its figures": "its_figures.yaml", "our catalogue": "catalogue.yaml"}


def instances() -> dict[str, Instance]:
    """The plan space by whose figures of the machine it has."""
    return {name: load_instance(FOLDER / file) for name, file in MACHINES.items()}


def configurations(folder: Path) -> list[Row]:
    """Calculon's rows, shortest step first."""
    rows: list[Row] = json_of(folder / FILE)["rows"]
    return rows


def compared(base: Instance, row: Row) -> Figures:
    """Step and memory of a row that can be expressed, by kind: Calculon's, and ours."""
    instance, plan = planned(base, row)
    model = Calculon(row)
    return {
        "row": dict(row),
        "their_s": model.times_s(),
        "our_s": times_s(instance, plan),
        "their_bytes": model.memory_bytes(),
        "our_bytes": memory_bytes(instance, plan),
    }


def error(figures: Figures, unit: str) -> float:
    """Ours over Calculon's, less 1; unit: s or bytes."""
    return float(sum(figures[f"our_{unit}"].values()) / sum(figures[f"their_{unit}"].values()) - 1)


def _ranges(values: Sequence[float]) -> list[str]:
    found = 100 * np.array(values)
    return [f"{value:+.1f}" for value in (found.mean(), found.min(), found.max())]


def kinds_table(rows: Sequence[Figures], unit: str) -> Table:
    """By kind: ours less Calculon's, in percent of Calculon's whole; and the whole."""
    whole_of = f"of its {'step' if unit == 's' else 'memory'}"
    result = new_table((whole_of, "its share", "mean %"), ("least %", "most %"))
    whole = [sum(row[f"their_{unit}"].values()) for row in rows]
    for kind in rows[0][f"their_{unit}"]:
        theirs, ours = ([row[f"{who}_{unit}"][kind] for row in rows] for who in ("their", "our"))
        share = np.mean(np.array(theirs) / whole)
        differences = (np.array(ours) - theirs) / whole
        result.add_row(kind, f"{100 * share:.1f}", *_ranges(differences.tolist()))
    result.add_row("whole", "100", *_ranges([error(row, unit) for row in rows]))
    return result


def groups_table(rows: Sequence[Figures]) -> Table:
    """Errors by recomputation, traffic and overlap."""
    result = new_table(
        ("recompute", "traffic", "overlap", "rows"),
        ("time: mean %", "least %", "most %", "memory: mean %", "least %", "most %"),
    )
    names = ("recompute", "tp_comm", "tp_overlap")
    for key in sorted({tuple(row["row"][name] for name in names) for row in rows}):
        own = [row for row in rows if tuple(row["row"][name] for name in names) == key]
        ranges = [_ranges([error(row, unit) for row in own]) for unit in ("s", "bytes")]
        result.add_row(*key, str(len(own)), *ranges[0], *ranges[1])
    return result


def picture(rows: dict[str, list[Figures]], unit: str) -> str:
    """Ours over Calculon's, by recomputation; of time also with our figures of the machine."""
    scale = UNITS[unit]
    points = [
        Point(
            f"recompute {row['row']['recompute']}" if name == "its figures" else "our A100",
            sum(row[f"their_{unit}"].values()) / scale,
            sum(row[f"our_{unit}"].values()) / scale,
        )
        for name, own in rows.items()
        if unit == "s" or name == "its figures"
        for row in own
    ]
    title, symbol = ("step", "s") if unit == "s" else ("memory of the fullest GPU", "GiB")
    return scatter_picture(
        f"{title}: GPT-3 175B, 1,024 A100", f"Calculon, {symbol}", f"ours, {symbol}", points
    )


def summary(rows: Sequence[Figures], every: Sequence[Row]) -> Figures:
    """What is stored: per row its number, theirs and ours in s and GiB; by kind the mean shares."""
    whole = {unit: np.array([sum(row[f"their_{unit}"].values()) for row in rows]) for unit in UNITS}
    kinds = {
        f"{who}_{unit}": {
            kind: round(
                float(np.mean([row[f"{who}_{unit}"][kind] for row in rows] / whole[unit])), 4
            )
            for kind in rows[0][f"{who}_{unit}"]
        }
        for who, unit in product(("their", "our"), UNITS)
    }
    return {"kinds": kinds, "rows": [_totals(row, every.index(row["row"])) for row in rows]}


def _totals(figures: Figures, number: int) -> list[float]:
    found = [
        round(sum(figures[f"{who}_{unit}"].values()) / scale, 4)
        for unit, scale in UNITS.items()
        for who in ("their", "our")
    ]
    return [number, *found]


def main() -> None:
    """Runs the benchmark."""
    parser = command("calculon")
    parser.add_argument("--pictures", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    every = configurations(reference(FILE))
    left = Counter(why for row in every if (why := why_not(row)))
    rows = {
        name: [compared(base, row) for row in every if not why_not(row)]
        for name, base in instances().items()
    }
    figures = {name: summary(own, every) for name, own in rows.items()}
    append(chosen.out, [record("calculon", {"machines": figures, "left_out": dict(left)})])
    for unit, file in (("s", "calculon.svg"), ("bytes", "calculon_memory.svg")):
        (chosen.pictures / file).write_text(picture(rows, unit), encoding="utf-8")
    console = wide_console()
    for name, own in rows.items():
        console.print(f"{len(own)} of {len(every)} rows, {name}: ours less Calculon's")
        for table in (groups_table(own), kinds_table(own, "s"), kinds_table(own, "bytes")):
            console.print(table)
    for why, count in left.items():
        console.print(f"{count} rows left out: {why}")
