"""The instance of a step whose micro-batches are rows of one length."""

from formulations.errors import InstanceError
from formulations.instance.instance import Instance
from formulations.instance.lengths import Lengths, MeasuredStrategy
from formulations.instance.transformer import build_workload
from formulations.units import ceil_div, ceil_ns


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


def measured_rows(instance: Instance, strategy: MeasuredStrategy) -> list[tuple[int, int]]:
    """Rows that are one sequence, tokens and ns: those that were measured, two at least.

    One row does not tell what grows with its length. So the second one takes as much longer as the
    model has more FLOPs in it (Narayanan et al. 2021, equation 3: in proportion to s + s^2 / 6 h,
    and the head): the longest sequence, or a row of half the tokens where that was measured.
    """
    rows = [(tokens, ceil_ns(time_s)) for tokens, time_s in strategy.row_times_s]
    if len(rows) > 1:
        return rows
    [(tokens, time_ns)] = rows
    longest = lengths_of(instance).longest
    second = longest if longest != tokens else ceil_div(tokens, 2)
    flops, as_many = (of_rows(instance, n, 1).workload.forward_flops for n in (tokens, second))
    return sorted({(tokens, time_ns), (second, ceil_div(time_ns * as_many, flops))})
