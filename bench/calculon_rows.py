"""Calculon's configurations of GPT-3 175B as plans of ours, and what our figures consist of.

Plans lie in the space of `bench/calculon/*.yaml`: blocks split evenly, embedding and head with the
first and last, ZeRO 1; `rs_ag` is sequence parallelism, `attn_only` selective recomputation. The
overlap of a file counts where a row has it. Gathering again what sequence parallelism splits is
hidden behind products here, as in Korthikanti et al. 2023: rows with and without it are one plan.
"""

import numpy as np

from bench.accuracy_rows import Row, even_plan
from formulations.costs.plan_costs import plan_costs, plan_memory
from formulations.costs.tables import Array, build_tables
from formulations.instance import Instance
from formulations.instance.workload import Recompute
from formulations.plan import Configuration, Plan, uniform_degrees
from formulations.units import NANOSECONDS_PER_SECOND
from solver.simulate import step_time_ns

WAYS: dict[str, Recompute] = {"none": "none", "attn_only": "selective", "full": "full"}


def why_not(row: Row) -> str | None:
    """What of a row no plan of ours has."""
    micro_batches = row["global_batch"] // (row["dp"] * row["micro_batch"])
    if row["virtual_pipeline"] > 1 and micro_batches % row["pp"]:
        return "interleaved, micro-batches no multiple of the stages"
    return None


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
    fullest = max(plan_memory(instance, plan)[0], key=sum)
    return {
        "weights": fullest.weights_bytes,
        "gradients": fullest.gradients_bytes,
        "optimizer": fullest.optimizer_bytes,
        "activations": fullest.activations_bytes + fullest.buffers_bytes,
    }
