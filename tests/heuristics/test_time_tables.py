"""What the configurations of an instance share: bounds asked together are those asked alone."""

import pytest

from formulations.costs.compute import TimeColumns
from formulations.costs.tables import build_tables
from formulations.space import configs
from solver.bounds.closed_forms import closed_forms
from solver.heuristics.time_tables import TimeTables
from tests.seeds import one_each
from tests.small_instances import random_instance


@pytest.mark.parametrize("seed", one_each(range(16), 4))
def test_shared_tables_are_those_of_single_configs(seed: int) -> None:
    """Costs and closed forms; packing is no lower, and refutes what it says."""
    instance = random_instance(seed)
    known, space = TimeTables(instance), list(configs(instance))
    for config, form in zip(space, known.forms(space), strict=True):
        times = TimeColumns(instance).times(config.degrees, config.micro_batch, config.recompute[0])
        assert form == closed_forms(instance, [config], [times])[0]
        tables, alone = known.costs(config), build_tables(instance, config)
        assert (tables.forward_ns == alone.forward_ns).all()
    packed = known.packed_ns(space)
    assert all(ns >= form.bound_ns for ns, form in zip(packed, known.forms(space), strict=True))
    assert known.afresh().packed_ns(space) == packed
    higher = [ns for ns, form in zip(packed, known.forms(space), strict=True)]
    raised = [ns > form.bound_ns for ns, form in zip(packed, known.forms(space), strict=True)]
    refuted = known.refuted(space, higher)
    assert all(shut for shut, up in zip(refuted, raised, strict=True) if up)
