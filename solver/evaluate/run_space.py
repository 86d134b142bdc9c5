"""The instance whose plan space holds what is run: its target, and choices that it leaves out."""

from formulations.instance import Instance
from formulations.instance.search import RECOMPUTE_WAYS, SearchSpace
from formulations.instance.target import RULES, Target
from formulations.plan import GRADIENTS_SPLIT
from formulations.slot_degrees import powers_of_two
from formulations.space import MAX_MICRO_BATCH
from solver.evaluate.launched import Launched


def space_of(instance: Instance, run: Launched) -> Instance:
    """The instance for the target of a run, with each of the run's choices among those allowed.

    Where the first blocks of every rank are recomputed, which no plan of Megatron-LM's space does,
    stages recompute on their own; where its FSDP splits more than states, any target's do.
    """
    search = narrowed(instance.search, run.target)
    partly = run.first_blocks is not None
    powers = powers_of_two(max(group.gpus_per_node for group in instance.cluster.groups))
    found: dict[str, object] = {
        "tensor_parallel": _with(search.tensor_parallel, run.tp, powers),
        "pipeline_parallel": _with(search.pipeline_parallel, run.pp),
        "context_parallel": _with(search.context_parallel, run.cp),
        "expert_parallel": _with(search.expert_parallel, run.ep),
        "expert_tensor_parallel": tuple(
            dict.fromkeys((*search.expert_tensor_parallel, run.etp or "tp"))
        ),
        "data_parallel": None if run.dp is None else _with(search.data_parallel, run.dp),
        "micro_batch": _with(search.micro_batch, run.micro_batch, powers_of_two(MAX_MICRO_BATCH)),
        "zero": tuple(sorted({*search.zero, run.zero})),
        "schedule": tuple(dict.fromkeys((*search.schedule, run.schedule))),
        "recompute": _ways(search, run.recompute, *(("none",) if partly else ())),
    }
    if run.vpp > 1:
        found["virtual_pipeline"] = tuple(sorted({*search.virtual_pipeline, run.vpp}))
    if partly:
        found |= {"target": "any", "recompute_per": "stage"}
    if run.target == "megatron" and run.zero >= GRADIENTS_SPLIT:
        found["target"] = "any"
    return instance.but(search=search.model_copy(update=found))


def narrowed(search: SearchSpace, target: Target) -> SearchSpace:
    """The choices of a plan space that a target can run; where it can run none of a field, its."""
    if target == search.target:
        return search
    found = {
        field: rule.kept(getattr(search, field))
        for field, rule in RULES[target].items()
        if field in SearchSpace.model_fields
    }
    return search.model_copy(update={**found, "target": target})


def _with(
    values: tuple[int, ...] | None, value: int, otherwise: tuple[int, ...] | None = None
) -> tuple[int, ...] | None:
    """The values with one more; otherwise: what None stands for, None if that is everything."""
    known = otherwise if values is None else values
    return values if known is None or value in known else (*known, value)


def _ways(search: SearchSpace, *ways: str) -> tuple[str, ...]:
    return tuple(way for way in RECOMPUTE_WAYS if way in (*search.recompute, *ways))
