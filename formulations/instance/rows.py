"""The instance of a step whose micro-batches are rows of one length."""

from formulations.errors import InstanceError
from formulations.instance.instance import Instance
from formulations.instance.lengths import Lengths
from formulations.instance.transformer import build_workload


def lengths_of(instance: Instance) -> Lengths:
    """The section `lengths`. Raises InstanceError where there is none."""
    if instance.lengths is None:
        raise InstanceError("lengths", "missing", "a section with histogram, file or log_normal")
    return instance.lengths


def of_rows(instance: Instance, tokens: int, num_rows: int) -> Instance:
    """The instance with `num_rows` rows a step, each one sequence of so many tokens."""
    own = {
        name: build_workload(
            lengths_of(instance).architecture,
            name=old.name,
            source=old.source,
            sequence_length=tokens,
            global_batch=num_rows,
            precision=old.precision,
            gradient_bytes=old.gradient_bytes,
            flash_attention=old.flash_attention,
            optimizer_state=old.optimizer_state or "fp32",
        )
        for name, old in (("workload", instance.workload), ("fused", instance.fused))
        if old is not None
    }
    return instance.model_copy(update={**own, "lengths": None})
