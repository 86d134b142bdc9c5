"""Switch times between all plans of a model, for the choice of strategies."""

from collections.abc import Sequence
from itertools import product

from formulations.instance import Cluster, Workload
from formulations.lengths.problem import Switching
from formulations.plan import Plan
from formulations.switching.seats import Kind, Layout, layout_of
from formulations.switching.switch import switch_of
from solver.switching.quickest import quick_plan


def switch_times(cluster: Cluster, workload: Workload, plans: Sequence[Plan]) -> Switching:
    """Times of switch plans from every plan to every other, 0 where nothing moves.

    Sequence lengths and batch of the workload do not count.
    """
    layouts = [layout_of(cluster, plan) for plan in plans]
    return Switching(
        parameters_ns=_times(cluster, workload, layouts, "parameters"),
        gradients_ns=_times(cluster, workload, layouts, "gradients"),
    )


def _times(
    cluster: Cluster, workload: Workload, layouts: Sequence[Layout], kind: Kind
) -> tuple[tuple[int, ...], ...]:
    times: dict[tuple[Layout, Layout], int] = {}
    different = tuple(dict.fromkeys(layouts))
    for before, after in product(different, different):
        switch = switch_of(cluster, workload, before, after, [kind])
        times[before, after] = quick_plan(switch)[1]
    return tuple(tuple(times[before, after] for after in layouts) for before in layouts)
