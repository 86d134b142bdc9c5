"""Stages hold whole blocks: trial times by hand; the optimum is held against in closed forms."""

from solver.bounds.closed_forms import closed_forms
from solver.bounds.packing import packed_ns, refuted
from tests.graph.drawn import drawn_configs
from tests.recorded import Cases, recorded


@recorded("packing")
def test_bounds_are_the_recorded_ones() -> Cases:
    for name, (instance, configs, times) in drawn_configs().items():
        forms = closed_forms(instance, configs, times)
        known = [form.bound_ns for form in forms]
        above = [ns * 4 // 3 for ns in known]
        flags = refuted(instance, configs, times, above)
        yield name, [sorted(packed_ns(instance, configs, times, known)), sum(flags)]
