"""What is known of the templates of an instance, and what to say where there are none."""

from dataclasses import dataclass

from formulations.errors import PlannerError
from formulations.fleet import Strategy
from solver.result import Status
from solver.templates.template_outcome import TemplateOutcome


class NoTemplateError(PlannerError):
    """No template fits the cluster, or not as many as asked for."""

    exit_code = 3


@dataclass(frozen=True)
class TemplateResult:
    """What is known of one mix of nodes.

    outcome: value and bound in ns, of the objective. step_ns: simulated step of the template with
    `micro_batches`. strategy: that of the template. Both None without a template.
    """

    nodes: int
    micro_batches: int
    outcome: TemplateOutcome
    strategy: Strategy | None
    step_ns: int | None
    status: Status

    @property
    def gap(self) -> float | None:
        """Distance of the bound to the value, relative to the value."""
        value = self.outcome.value
        return None if value is None else 1 - self.outcome.bound / value
