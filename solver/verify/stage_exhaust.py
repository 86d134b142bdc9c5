"""Every plan of a shape whose stages have degrees of their own, struck out or tried: `exhaust`."""

from collections.abc import Sequence

from formulations.costs.plan_costs import PlanCosts, plan_costs
from formulations.plan import Plan, Shape
from formulations.space import PlanSpace
from solver.verify.bounds import Prover
from solver.verify.clock import Clock
from solver.verify.exhaust import Trial
from solver.verify.refutation import Refutation
from solver.verify.simulated import Outcome
from solver.verify.stage_orders import StageGraph, places_of
from solver.verify.stages import Stages


class StageTrial(Trial):
    """The plans of such a shape against one claim; its graph is by place."""

    def __init__(self, whole: Prover, graph: StageGraph, below_ns: int, clock: Clock) -> None:
        even = graph.instance.search.model_copy(update={"micro_batches": "even"})
        instance = graph.instance.model_copy(update={"search": even})
        stages = Stages(Prover(PlanSpace(instance)), graph.shape, graph)
        super().__init__(Refutation(stages, stages.total // graph.width, clock), below_ns)
        self.whole, self.stage_graph = whole, graph

    def plan(self, steps: Sequence[int], ends: Sequence[int], shares: Sequence[int]) -> Plan:
        """The plan of these steps and layer boundaries."""
        return self.stage_graph.plan(self.prover, steps, ends)

    def costs(self, plan: Plan) -> PlanCosts:
        """What it costs, on the nodes of the instance."""
        return plan_costs(self.whole.instance, plan)


def exhaust_stages(prover: Prover, shape: Shape, below_ns: int, clock: Clock) -> Outcome | None:
    """Whether any plan has a step time below this; None if there are too many ways to place it.

    Raises TimeUpError.
    """
    graph = StageGraph(prover.instance, shape, places_of(prover.space, shape))
    if graph.steps is None:
        return None
    if not graph.steps:
        return Outcome(tried=False)
    trial = StageTrial(prover, graph, below_ns, clock)
    return trial.hunted(trial.question.everything(below_ns))
