"""Oobleck's template objective, reproduced so that templates can be compared with its planner's.

Jang et al., SOSP 2023, section 4.1.2, as in the public code (SymbioticLab/Oobleck,
csrc/planning/execution_result.h): T1 + T2 + T3 with S stages of forward plus backward times t_i,
k* the slowest of them, the last one of several,

    sum of all t_i + (2 S + k* + 1) t_k* + sum of t_i for i >= k*;     4 t_0 if S = 1.

In the words of `bottleneck`: a stage before k* adds t_i + 3 t_k*, k* itself 2 t_k* + 3 t_k*, one
after it 2 t_i + 2 t_k*. Check with stages 1, 3, 2: 6 + (6 + 1 + 1) 3 + 5 = 35 = 1 + 9 + 15 + 4 + 6.
"""

from collections.abc import Mapping, Sequence

from formulations.template import Template, TemplateStage
from solver.enumeration.problem import Array
from solver.resilience.bottleneck import BottleneckSearch
from solver.resilience.chains import Counts, Weights
from solver.resilience.places import PlaceCosts, Places

WEIGHTS = Weights(before=(1, 3), slowest=(2, 3), after=(2, 2))


def oobleck_value(times: Sequence[int]) -> int:
    """T1 + T2 + T3 of stage times in pipeline order."""
    return 4 * times[0] if len(times) == 1 else WEIGHTS.value(times)


def stage_times(places: Places, template: Template) -> list[int]:
    """Forward plus backward of every stage."""
    known = {(j, g): c for c, (j, g) in enumerate(zip(places.group, places.gpus, strict=True))}
    busy: Array = places.forward + places.backward
    return [
        int(busy[known[template.node_groups[stage.node], stage.gpus], *stage.layers])
        for stage in template.stages
    ]


def _alone(places: Places, finals: Sequence[Counts]) -> list[Template]:
    """Templates of one stage on one whole node."""
    return [
        Template(
            node_groups=(j,),
            stages=(TemplateStage(layers=(0, places.num_layers), node=0, first_gpu=0, gpus=gpus),),
        )
        for j, gpus in enumerate(places.node_gpus)
        if gpus in places.of_group(j)
        and any(v[j] == 1 == sum(v) for v in finals)
        and places.room[places.of_group(j)[gpus], 0, -1] > 0
    ]


def oobleck_templates(
    costs: PlaceCosts, finals: Mapping[int, Sequence[Counts]]
) -> dict[int, Template]:
    """A template of least T1 + T2 + T3 for every key of `finals` that has one."""
    found = BottleneckSearch(costs.several, WEIGHTS, finals).run()
    for key, own in finals.items():
        for alone in _alone(costs.alone, own):
            best = found.get(key)
            value = oobleck_value(stage_times(costs.alone, alone))
            if best is None or value < oobleck_value(stage_times(costs.several, best)):
                found[key] = alone
    return found
