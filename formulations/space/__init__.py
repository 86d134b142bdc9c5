"""Which configurations an instance, its target and its limits allow, and who can launch a plan.

Search, models, verifier, `evaluate`, exporters, templates and fleets all ask here; what single
frameworks can run stands beside the schema that their rules are about, in
`formulations.instance.targets`.
"""

from formulations.space.configurations import PlanSpace, configs, configs_of

__all__ = ["PlanSpace", "configs", "configs_of"]
