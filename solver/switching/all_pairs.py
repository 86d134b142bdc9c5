"""Switch times between all plans of a model, for the choice of strategies."""

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from itertools import product

from pydantic import TypeAdapter

from formulations.instance import Cluster, Workload
from formulations.lengths.problem import Switching
from formulations.plan import Plan
from formulations.switching.seats import Kind, Layout, layout_of
from formulations.switching.switch import switch_of
from solver.study.store import Study, made_once
from solver.switching.quickest import plan_switch

#: In a study: records of times between two layouts.
SWITCH = "switch"
_LAYOUT, _TIME = TypeAdapter(Layout), TypeAdapter(int)


def switch_times(
    cluster: Cluster, workload: Workload, plans: Sequence[Plan], study: Study | None = None
) -> Switching:
    """Times of switch plans from every plan to every other, 0 where nothing moves.

    Sequence lengths and batch of the workload do not count.
    """
    layouts = [layout_of(cluster, plan) for plan in plans]
    names = {one: sha256(_LAYOUT.dump_json(one)).hexdigest() for one in layouts}

    def time_ns(before: Layout, after: Layout, kind: Kind) -> int:
        switch = switch_of(cluster, workload, before, after, [kind])
        found = plan_switch(switch)
        if found.interrupted:
            raise KeyboardInterrupt
        return found.time_ns

    def times(kind: Kind) -> tuple[tuple[int, ...], ...]:
        found = {}
        for before, after in product(names, names):
            key = f"{kind} from {names[before]} to {names[after]}"
            make = partial(time_ns, before, after, kind)
            found[before, after] = made_once(study, SWITCH, key, _TIME, make)
        return tuple(tuple(found[before, after] for after in layouts) for before in layouts)

    return Switching(parameters_ns=times("parameters"), gradients_ns=times("gradients"))
