"""Why an instance has no plan, and the smallest change that would give it one."""

from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance
from formulations.units import GIB
from solver.result import Infeasibility
from solver.search.closing import lacks_memory
from solver.search.shapes import micro_batches, node_vectors, shapes, tensor_degrees


def _with_memory(instance: Instance, extra_bytes: int) -> Instance:
    groups = tuple(
        g.model_copy(
            update={
                "gpu": g.gpu.model_copy(update={"memory_bytes": g.gpu.memory_bytes + extra_bytes})
            }
        )
        for g in instance.cluster.groups
    )
    cluster = instance.cluster.model_copy(update={"groups": groups})
    return instance.model_copy(update={"cluster": cluster})


def _fits(instance: Instance) -> bool:
    tables: list[CostTables] = []
    for shape in shapes(instance):
        tables = [build_tables(instance, shape)]
        if not lacks_memory(tables[0]):
            return True
    return False


def _missing_bytes(instance: Instance) -> int:
    """Least extra memory per GPU, to 1/16 GiB, with which some shape may fit."""
    step, high = GIB // 16, 1
    while not _fits(_with_memory(instance, high * step)):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(_with_memory(instance, middle * step)):
            high = middle
        else:
            low = middle
    return high * step


def _no_shape(instance: Instance) -> Infeasibility:
    vectors = list(node_vectors(instance))
    if not vectors:
        limit = instance.limits.max_price_usd_per_hour
        cheapest = min(g.price_usd_per_hour for g in instance.cluster.groups)
        return Infeasibility(
            f"limits.max_price_usd_per_hour {limit:g} USD/h is below the price of every node",
            f"raise it to {cheapest:g} USD/h, the cheapest node",
        )
    if not any(tensor_degrees(instance, vector) for vector in vectors):
        return Infeasibility(
            "no tensor-parallel degree divides the GPU count of the nodes used and the "
            f"{instance.workload.kv_heads} key and value heads",
            "allow fewer GPUs per tensor group: add 1 to search.tensor_parallel",
        )
    return Infeasibility(
        "no degrees fit: tp * dp * pp must equal the GPUs used, pp is at most the number of "
        f"blocks and dp at most the micro-batches per step (sizes {micro_batches(instance)})",
        "allow more values of search.data_parallel, pipeline_parallel or micro_batch, "
        "micro_batches: uneven, or idle nodes",
    )


def explain(instance: Instance) -> Infeasibility:
    """The constraint that cannot be met and the smallest change that would help."""
    if next(shapes(instance), None) is None:
        return _no_shape(instance)
    if not _fits(instance):
        missing = _missing_bytes(instance) / GIB
        return Infeasibility(
            "memory: no split of any shape fits the GPUs, even with the largest GPU everywhere",
            f"about {missing:.2f} GiB more memory per GPU, or a larger tensor-parallel degree, "
            "more pipeline stages, smaller micro-batches, recompute: full or the distributed "
            "optimizer where the instance does not allow them",
        )
    limits = instance.limits
    if limits.max_step_time_s is not None or limits.max_cost_usd_per_step is not None:
        return Infeasibility(
            "limits: every plan that fits memory exceeds the limit on step time or cost per step",
            "raise limits.max_step_time or limits.max_cost_per_step; solve without them to see "
            "the best values",
        )
    return Infeasibility(
        "memory: every shape that would fit the largest GPU everywhere fails on the smaller GPUs",
        "more memory on the smaller GPUs, idle_nodes: true, or smaller micro-batches",
    )
