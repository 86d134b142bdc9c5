"""What the shapes of an instance share: bounds asked together are those asked alone."""

import pytest

from formulations.costs.compute import layer_times
from formulations.costs.tables import build_tables
from formulations.space import shapes
from solver.bounds.closed_forms import closed_forms
from solver.heuristics.time_tables import TimeTables
from solver.result import objective_weight
from tests.seeds import one_each
from tests.small_instances import random_instance


@pytest.mark.parametrize("seed", one_each(range(16), 4))
def test_shared_tables_are_those_of_single_shapes(seed: int) -> None:
    """Costs and closed forms; packing is no lower, and refutes what it says."""
    instance = random_instance(seed)
    known, space = TimeTables(instance), list(shapes(instance))
    for shape, form in zip(space, known.forms(space), strict=True):
        times = layer_times(instance, shape.degrees, shape.micro_batch, shape.recompute[0])
        assert form == closed_forms(instance, [shape], [times])[0]
        tables, alone = known.costs(shape), build_tables(instance, shape)
        assert (tables.forward_ns == alone.forward_ns).all()
    packed = known.packed_ns(space)
    assert all(ns >= form.bound_ns for ns, form in zip(packed, known.forms(space), strict=True))
    assert known.afresh().packed_ns(space) == packed
    higher = [ns for ns, form in zip(packed, known.forms(space), strict=True)]
    raised = [ns > form.bound_ns for ns, form in zip(packed, known.forms(space), strict=True)]
    refuted = known.refuted(space, higher)
    assert all(shut for shut, up in zip(refuted, raised, strict=True) if up)


def test_shapes_come_by_their_bound() -> None:
    """The least objective first."""
    instance = random_instance(3)
    ranked = TimeTables(instance).by_bound(shapes(instance))
    bounds = [bound for bound, _ in ranked]
    assert bounds == sorted(bounds)
    forms = TimeTables(instance).forms([shape for _, shape in ranked])
    weights = [objective_weight(instance, shape) for _, shape in ranked]
    assert bounds == [form.bound_ns * w for form, w in zip(forms, weights, strict=True)]
